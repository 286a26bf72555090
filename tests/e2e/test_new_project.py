"""`nat init` in an empty folder, and what a newcomer does with the project; test_doc_shell.py trains it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.made_once import made_once
from fakes.project_model import project_model

pytestmark = pytest.mark.usefixtures("forked_processes")

NAT = (sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()")


@pytest.fixture
def folder(tmp_path, shared_folder, forked_processes) -> Path:
    """A folder with a copy of the project `demo`, which `nat init` makes once, from nothing, for all processes."""
    return shutil.copytree(made_once(shared_folder / "init", init), tmp_path, dirs_exist_ok=True)


def init(folder: Path) -> None:
    assert "Wrote demo/" in done(folder, *NAT, "init", "demo")
    project_model(ready=folder / "demo" / "model")


def done(folder: Path, *command: str) -> str:
    """Run a command in the folder until it succeeds, as in an activated environment; gives its output.

    There, `python3` starts without a version manager's script.
    """
    activated = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(command, cwd=folder, env=activated, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def trained(project: Path) -> dict[str, object]:
    """The summary of an epoch without a failure, after the project's own test has passed."""
    assert "2 passed" in done(project, sys.executable, "-m", "pytest", "-q")
    epochs = ("-o", "finetuning.num_epochs", "1", "-o", "llms.student.threads", "1")
    done(project, *NAT, "finetune", "--config_file=config.yml", *epochs)
    summary = json.loads((project / ".tmp/runs/latest/summary.json").read_text())
    assert summary["failures"] == []
    assert summary["broken_by"] == {}
    return summary


def test_a_program_trains_as_it_stands(folder):
    """An agent as a program trains through the gateway; the same model suits it."""
    done(folder, *NAT, "init", "program", "--framework", "command", "--no_model")
    project = folder / "program"
    shutil.copytree(folder / "demo" / "model", project / "model")
    for split, rows in (("train", 4), ("held_out", 2)):
        data = project / "data" / f"{split}.jsonl"
        data.write_text("".join(data.read_text().splitlines(keepends=True)[:rows]))
    assert trained(project)["tokens_trained"] > 0


def test_an_answer_comes_from_the_trained_agent(folder):
    """`nat run` of the README asks the agent with the tiny model."""
    said = done(folder / "demo", *NAT, "run", "--config_file=config.yml", "--input", "What is 7 + 5?")
    assert "Workflow Result:" in said


def test_the_project_can_be_checked_without_training(folder):
    """Nothing is wrong with the configuration, to its last reference."""
    assert "Configuration file is valid!" in done(folder / "demo", *NAT, "validate", "--config_file=config.yml")
