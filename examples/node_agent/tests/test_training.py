import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from examples.node_agent.contacts import NAMES, number_of
from examples.node_agent.make_data import rows

from nat.cli.main import cli

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/node_agent"
CONFIG = EXAMPLE / "configs/finetune.yml"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no `node` on the PATH")


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_data_is_the_scripts_output(split):
    """The data files equal what make_data.py writes."""
    lines = (EXAMPLE / "data" / f"{split}.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows(split)


def test_the_splits_share_no_request():
    """No held-out request is trained on."""
    asked = [{row["question"] for row in rows(split)} for split in ("train", "validation")]
    assert asked[0].isdisjoint(asked[1])


def test_every_contact_has_the_number_of_the_answers():
    """The files that the agent opens agree with the expected answers."""
    found = {path.stem: int(path.read_text()) for path in (EXAMPLE / "agent/contacts").iterdir()}
    assert found == {name: number_of(name) for name in NAMES}


@pytest.mark.slow
@needs_node
@pytest.mark.usefixtures("forked_processes")
def test_the_agent_gets_better(tmp_path: Path, monkeypatch) -> None:
    """A shortened run of the unchanged program answers more held-out requests correctly."""
    monkeypatch.chdir(ROOT)
    agent = EXAMPLE / "agent/agent.mjs"
    before = agent.read_bytes()
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("\n".join((EXAMPLE / "data/validation.jsonl").read_text().splitlines()[:48]))
    overrides = {
        "finetuning.num_epochs": "2",
        "finetuning.output_dir": str(tmp_path / "run"),
        "trajectory_builders.answers.num_generations": "4",
        "trainer_adapters.weights.training.steps_per_batch": "12",
        "llms.student.threads": "1",
    }
    options = [word for path, value in overrides.items() for word in ("-o", path, value)]
    result = CliRunner().invoke(
        cli, ["finetune", f"--config_file={CONFIG}", f"--validation_dataset={held_out}", *options]
    )
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "run/latest/summary.json").read_text())
    assert summary["verdict"] == "improved"
    assert agent.read_bytes() == before


@needs_node
def test_the_agent_fails_without_a_server() -> None:
    """The program reports the missing server and exits with an error, which would fail its rollout."""
    done = subprocess.run(
        ["node", "agent.mjs"],
        cwd=EXAMPLE / "agent",
        input="ring anna",
        env={"PATH": os.environ["PATH"], "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ECONNREFUSED 127.0.0.1:9" in done.stderr
