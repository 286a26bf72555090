"""The rollouts of a run with tools, exported in each format, are loaded with `datasets` and trained with TRL."""

import json
import subprocess
import sys
from math import isfinite
from pathlib import Path

import pytest
from conformance.environments import outside, python_of

NAT = Path(sys.executable).with_name("nat")
TRAIN = Path(__file__).with_name("train.py")
DEADLINE_S = 900
FORMS = ("grpo", "preference", "kto", "messages")
OTHERWISE = 0.02
"""Share of rows that may have tokens that their text does not show, such as a sampled token of the template's."""


def said(command: list[str | Path], folder: Path) -> str:
    """The output of a command that must succeed."""
    env = outside() | {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose agent adds with a tool, after two epochs."""
    folder = tmp_path_factory.mktemp("trl")
    said([NAT, "init", "adder"], folder)
    project = folder / "adder"
    said([NAT, "finetune", "--config_file=config.yml", "-o", "finetuning.num_epochs", "2"], project)
    return project


@pytest.fixture(scope="session")
def steps(project: Path) -> dict[str, dict]:
    """What TRL reports of a step on the file of each format."""
    names = [f"{form}.jsonl" for form in FORMS]
    for name in names:
        said(
            [NAT, "runs", "rollouts", "latest", name, "--as", name.partition(".")[0], "--tokens"],
            project,
        )
    answer = json.loads(said([python_of("trl"), TRAIN, "model", *names], project).splitlines()[-1])
    return {name.partition(".")[0]: answer[name] for name in names}


@pytest.mark.parametrize("form", FORMS)
def test_a_step_changes_the_weights(steps, form):
    """DPO, KTO, SFT and GRPO of TRL take the files as they are, with a finite loss."""
    assert steps[form]["rows"] > 0
    assert isfinite(steps[form]["loss"])
    assert steps[form]["changed"] > 0


@pytest.mark.parametrize("form", ["preference", "kto", "messages"])
def test_trl_makes_the_recorded_tokens_of_the_messages(steps, form):
    """With the model's chat template, tools and tool calls included, the tokens are those of the rollouts."""
    rows = steps[form]["rows"]
    assert steps[form]["equal"]
    for name, equal in steps[form]["equal"].items():
        assert equal >= (1 - OTHERWISE) * rows, name


def test_arguments_of_tool_calls_are_objects(steps):
    """Templates write the arguments as JSON, so a text would be quoted twice."""
    (call,) = steps["preference"]["first"]["chosen"][0]["tool_calls"]
    assert call["function"]["name"] == "add"
    assert set(call["function"]["arguments"]) == {"a", "b"}
    (tool,) = json.loads(steps["preference"]["first"]["tools"])
    assert tool["function"]["name"] == "add"
