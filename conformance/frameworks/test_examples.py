"""The example with an agent of LangGraph trains in its environment."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.environments import REPOSITORY, outside, python_of

EXAMPLE = REPOSITORY / "examples" / "langgraph_agent"
EPOCHS = 4
"""Half of the epochs of its configuration."""
NUM_HELD_OUT = 120
"""Enough for an improvement by a quarter to be certain."""
DEADLINE_S = 900


def test_the_agent_improves_on_held_out_questions(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One command trains the tiny model in a shortened run; it then answers more held-out questions."""
    wanted = request.config.getoption("--framework")
    if wanted and "langgraph" not in wanted:
        pytest.skip("another framework was selected")
    nat = python_of("langchain").parent / "nat"
    held_out = tmp_path / "held_out.jsonl"
    lines = (EXAMPLE / "data" / "validation.jsonl").read_text().splitlines()
    held_out.write_text("\n".join(lines[:NUM_HELD_OUT]))
    files = ("--config_file", "examples/langgraph_agent/configs/finetune.yml", "--validation_dataset", held_out)
    overrides = {"finetuning.num_epochs": f"{EPOCHS}", "finetuning.output_dir": tmp_path / "run"}
    options = [word for key, value in overrides.items() for word in ("-o", key, value)]
    summary = _told(nat, "finetune", "--json", *files, *options)
    assert summary["verdict"] == "improved"
    assert summary["after"] > summary["before"]


def _told(*command: str | Path) -> dict[str, Any]:
    """What a command prints as JSON."""
    run = subprocess.run(
        command, cwd=REPOSITORY, env=outside(), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_no_held_out_question_is_trained_on() -> None:
    """The two data files share no question."""
    asked = [_questions(EXAMPLE / "data" / f"{split}.jsonl") for split in ("train", "validation")]
    assert not asked[0] & asked[1]


def _questions(file: Path) -> set[str]:
    return {json.loads(line)["question"] for line in file.read_text().splitlines()}
