"""A loss of one's own, from docs/extend/algorithm.md, trains the agent of docs/start/your_agent.md."""

import json
import os
import sqlite3
import subprocess
import sys
import tomllib

import pytest
import yaml

from e2e.doc_pages import ROOT, Page
from fakes.processes import NAT
from fakes.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("forked_processes")
def test_a_loss_of_ones_own_trains_the_agent(tmp_path):
    """It is found by its entry point, and recorded with its options."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    env |= {"MODEL": "student"}
    for block in Page(ROOT / "docs" / "start" / "your_agent.md").blocks:
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text)
        elif block.language == "python":
            subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, check=True)
    make_tiny_model(tmp_path / "student")
    blocks = Page(ROOT / "docs" / "extend" / "algorithm.md").blocks
    at = next(index for index, block in enumerate(blocks) if block.file_name == "sapo.py")
    package, settings = tomllib.loads(blocks[at + 1].text)["project"], yaml.safe_load(blocks[at + 2].text)
    (tmp_path / "sapo.py").write_text(blocks[at].text)
    metadata = tmp_path / "sapo-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sapo\nVersion: 0.1.0\n")
    [(name, value)] = package["entry-points"]["nat.algorithms"].items()
    (metadata / "entry_points.txt").write_text(f"[nat.algorithms]\n{name} = {value}\n")
    training = json.dumps(settings["trainer_adapters"]["weights"]["training"])
    options = ["finetuning.num_epochs", "1", "llms.student.threads", "1", "trainer_adapters.weights.training", training]
    pairs = [part for at in range(0, len(options), 2) for part in ("-o", *options[at : at + 2])]
    command = [sys.executable, "-c", NAT, "finetune", "--config_file", "sums.yml", *pairs]
    subprocess.run(command, cwd=tmp_path, env=env, check=True, timeout=300)
    with sqlite3.connect(tmp_path / ".tmp" / "sums" / "latest" / "journal.sqlite") as connection:
        [(record,)] = connection.execute("SELECT record FROM records WHERE kind = 'JobRecord'").fetchall()
    used = json.loads(record)["training"]
    assert (used["algorithm"], used["settings"]["policy_loss"]) == ("sapo", "sapo")
    assert used["settings"]["options"] == {"tau_positive": 1.0, "tau_negative": 1.2}
