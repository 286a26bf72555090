"""The agent of docs/start/your_agent.md, from its files to a trained model; a tiny model replaces the reader's."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from e2e.doc_pages import ROOT, Page
from fakes.made_once import made_once
from fakes.tiny_model import make_tiny_model

pytestmark = pytest.mark.usefixtures("forked_processes")

CONFIG = ("--config_file", "sums.yml")
HELD_OUT = ("--validation_dataset", "held_out.jsonl")
ONE_EPOCH = ("-o", "finetuning.num_epochs", "1", "-o", "llms.student.threads", "1")


@pytest.fixture
def project(tmp_path, shared_folder, forked_processes) -> Path:
    """The reader's folder after step 3, made once and copied for each test."""
    return shutil.copytree(made_once(shared_folder / "by_hand", follow), tmp_path, dirs_exist_ok=True)


def follow(folder: Path) -> None:
    """Do the first three steps of the guide."""
    for block in Page(ROOT / "docs" / "start" / "your_agent.md").blocks:
        if block.file_name is not None:
            (folder / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            done(folder, sys.executable, "-c", block.text)
    make_tiny_model(folder / "models" / "student")


def done(folder: Path, *command: str) -> str:
    """Run a command in the folder until it succeeds; gives its output."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    finished = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "MODEL": "models/student"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def nat(folder: Path, *arguments: str) -> str:
    return done(folder, sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()", *arguments)


def test_the_file_is_found(project):
    """The YAML names the page's file, whose types it uses; nothing is installed."""
    assert "Configuration file is valid!" in nat(project, "validate", *CONFIG)


def test_a_loss_of_ones_own_trains_the_agent(project):
    """The loss in docs/extend/algorithm.md is found by its entry point, trains, and is recorded with its options."""
    blocks = Page(ROOT / "docs" / "extend" / "algorithm.md").blocks
    at = next(index for index, block in enumerate(blocks) if block.file_name == "sapo.py")
    package, settings = tomllib.loads(blocks[at + 1].text)["project"], yaml.safe_load(blocks[at + 2].text)
    (project / "sapo.py").write_text(blocks[at].text)
    metadata = project / "sapo-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sapo\nVersion: 0.1.0\n")
    [(name, value)] = package["entry-points"]["nat.algorithms"].items()
    (metadata / "entry_points.txt").write_text(f"[nat.algorithms]\n{name} = {value}\n")
    training = settings["trainer_adapters"]["weights"]["training"]
    nat(project, "finetune", *CONFIG, *ONE_EPOCH, "-o", "trainer_adapters.weights.training", json.dumps(training))
    with sqlite3.connect(project / ".tmp" / "sums" / "latest" / "journal.sqlite") as connection:
        [(record,)] = connection.execute("SELECT record FROM jobs").fetchall()
    used = json.loads(record)["training"]
    assert (used["algorithm"], used["settings"]["policy_loss"], used["settings"]["aggregation"]) == (
        "sapo",
        "sapo",
        "seq_mean",
    )
    assert used["settings"]["options"] == {"tau_positive": 1.0, "tau_negative": 1.2}


def test_training_writes_the_documented_files(project):
    """A run of one epoch gives a verdict and every file that the run folder's page lists for it.

    The trained model plays in the same workflow.
    """
    said = nat(project, "finetune", *CONFIG, *HELD_OUT, *ONE_EPOCH)
    assert any(verdict in said for verdict in ("Improved: ", "No improvement shown: ", "Worse: "))
    latest = project / ".tmp" / "sums" / "latest"
    page = Page(ROOT / "docs" / "reference" / "run_folder.md")
    [tree] = [block.text for block in page.blocks if block.language == "text"]
    promised = re.findall(r"^│   (?:│   )?[├└]── ([\w.…]+)/? +(.+)", tree, flags=re.MULTILINE)
    assert len(promised) > 10
    always = [name for name, meaning in promised if not re.search(r"\bif |, with ", meaning)]
    assert len(promised) - len(always) == 6, "curriculum, preference pairs, failures, a second model, a date, a tracker"
    assert [name for name in always if not any((latest / part / name).exists() for part in ("", "trajectories"))] == []
    summary = json.loads((latest / "summary.json").read_text())
    table = (page.path.parent / "records.md").read_text("utf-8").partition("## summary.json")[2]
    assert set(re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE)) - {"cost", "phases"} == summary.keys()
    answer = nat(
        project, "run", *CONFIG, "-o", "llms.student.model", ".tmp/sums/latest/model", "--input", "What is 1 + 1?"
    )
    assert "Workflow Result:" in answer
