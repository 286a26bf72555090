"""The examples with agents of other frameworks train in each framework's environment."""

import json
import subprocess
from pathlib import Path

import pytest
from conformance.environments import REPOSITORY, outside, python_of

EXAMPLES = REPOSITORY / "examples"
NAMES = ("adk_agent", "langgraph_agent", "llama_index_agent")
DEADLINE_S = 900


@pytest.mark.parametrize("name", NAMES)
def test_the_agent_improves_on_held_out_questions(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One command trains the tiny model, which then answers more held-out questions."""
    wanted = request.config.getoption("--framework")
    if wanted and name.removesuffix("_agent") not in wanted:
        pytest.skip("another framework was selected")
    nat = python_of(name).parent / "nat"
    config = f"examples/{name}/configs/finetune.yml"
    run = subprocess.run(
        [nat, "finetune", "--json", "--config_file", config, "-o", "finetuning.output_dir", tmp_path],
        cwd=REPOSITORY,
        env=outside(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    summary = json.loads(run.stdout)
    assert summary["verdict"] == "improved"
    assert summary["after"] > summary["before"]


@pytest.mark.parametrize("name", NAMES)
def test_no_held_out_question_is_trained_on(name: str) -> None:
    """The two data files of an example share no question."""
    asked = [_questions(EXAMPLES / name / "data" / f"{split}.jsonl") for split in ("train", "validation")]
    assert not asked[0] & asked[1]


def _questions(file: Path) -> set[str]:
    return {json.loads(line)["question"] for line in file.read_text().splitlines()}
