"""The examples with agents of other frameworks train in each framework's environment."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.environments import REPOSITORY, outside, python_of

EXAMPLES = REPOSITORY / "examples"
EPOCHS = {"adk_agent": 3, "langgraph_agent": 4, "llama_index_agent": 4}
"""Half of the epochs of each example's configuration."""
ENVIRONMENTS = {"adk_agent": "adk", "langgraph_agent": "langchain", "llama_index_agent": "llama_index"}
NUM_HELD_OUT = 120
"""Enough for an improvement by a quarter to be certain."""
DEADLINE_S = 900


@pytest.mark.parametrize("name", EPOCHS)
def test_the_agent_improves_on_held_out_questions(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One command trains the tiny model in a shortened run; it then answers more held-out questions."""
    wanted = request.config.getoption("--framework")
    if wanted and name.removesuffix("_agent") not in wanted:
        pytest.skip("another framework was selected")
    nat = python_of(ENVIRONMENTS[name]).parent / "nat"
    held_out = tmp_path / "held_out.jsonl"
    lines = (EXAMPLES / name / "data" / "validation.jsonl").read_text().splitlines()
    held_out.write_text("\n".join(lines[:NUM_HELD_OUT]))
    files = ("--config_file", f"examples/{name}/configs/finetune.yml", "--validation_dataset", held_out)
    overrides = {"finetuning.num_epochs": f"{EPOCHS[name]}", "finetuning.output_dir": tmp_path / "run"}
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


@pytest.mark.parametrize("name", EPOCHS)
def test_no_held_out_question_is_trained_on(name: str) -> None:
    """The two data files of an example share no question."""
    asked = [_questions(EXAMPLES / name / "data" / f"{split}.jsonl") for split in ("train", "validation")]
    assert not asked[0] & asked[1]


def _questions(file: Path) -> set[str]:
    return {json.loads(line)["question"] for line in file.read_text().splitlines()}
