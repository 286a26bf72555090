"""The project that `nat init` writes for an agent as a program trains as it stands; test_doc_shell.py runs others."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.processes import NAT
from fakes.project_model import project_model

pytestmark = pytest.mark.slow


def done(folder: Path, *command: str) -> str:
    """Run a command in the folder until it succeeds, as in an activated environment; gives its output."""
    activated = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(command, cwd=folder, env=activated, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.usefixtures("forked_processes")
def test_a_program_trains_as_it_stands(tmp_path):
    """Its own tests pass, and an epoch trains through the gateway without a failure."""
    nat = (sys.executable, "-c", NAT)
    done(tmp_path, *nat, "init", "program", "--framework", "command", "--no_model")
    project = tmp_path / "program"
    shutil.copytree(project_model(), project / "model")
    for split, rows in (("train", 4), ("held_out", 2)):
        data = project / "data" / f"{split}.jsonl"
        data.write_text("".join(data.read_text().splitlines(keepends=True)[:rows]))
    assert "2 passed" in done(project, sys.executable, "-m", "pytest", "-q")
    epochs = ("-o", "finetuning.num_epochs", "1", "-o", "llms.student.threads", "1")
    done(project, *nat, "finetune", "--config_file=config.yml", *epochs)
    summary = json.loads((project / ".tmp/runs/latest/summary.json").read_text())
    assert (summary["failures"], summary["broken_by"]) == ([], {})
    assert summary["tokens_trained"] > 0
