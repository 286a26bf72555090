"""`nat run`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel

from fakes.scripted_workflow import ScriptedWorkflow
from nat.builder.context import Context
from nat.cli.commands.run import run_command
from nat.errors import WorkflowError


class Move(BaseModel):
    cell: int


async def answer(question: str):
    if question == "fail":
        raise ConnectionError("refused")
    return Move(cell=3) if question == "move" else question.upper()


def invoked(folder: Path, *arguments: str, workflow=answer) -> Result:
    scripted = ScriptedWorkflow(folder, workflow, [])
    with scripted.registered():
        return CliRunner().invoke(run_command, ["--config_file", str(scripted.config_file), *arguments])


def test_it_prints_the_result(tmp_path: Path):
    """Text is printed unchanged, records as JSON."""
    assert invoked(tmp_path, "--input", "hi").stdout == "Workflow Result:\nHI\n"
    assert json.loads(invoked(tmp_path, "--input", "move").stdout.removeprefix("Workflow Result:\n")) == {"cell": 3}


def test_several_inputs_come_back_in_order(tmp_path: Path):
    """`--input` may be repeated; `--json` prints one object per line."""
    result = invoked(tmp_path, "--input", "b", "--input", "a", "--json")
    assert [json.loads(line)["result"] for line in result.stdout.splitlines()] == ["B", "A"]


def test_input_file_is_one_input(tmp_path: Path):
    """The whole text of the file is one input, line breaks included."""
    (tmp_path / "in.txt").write_text("one\ntwo")
    assert invoked(tmp_path, "--input_file", str(tmp_path / "in.txt")).stdout == "Workflow Result:\nONE\nTWO\n"


def test_a_failed_input_fails_the_command(tmp_path: Path):
    """The other results are printed, and the exit code is 1."""
    result = invoked(tmp_path, "--input", "fail", "--input", "ok")
    assert result.exit_code == 1
    assert isinstance(result.exception, WorkflowError)
    assert "1 of 2 inputs failed, the first: ConnectionError: refused" in str(result.exception)
    assert "Workflow Failed:\nConnectionError: refused\nWorkflow Result:\nOK\n" in result.stdout
    assert json.loads(invoked(tmp_path, "--input", "fail", "--json").stdout)["error"]["type"] == "ConnectionError"


@pytest.mark.parametrize("arguments", [[], ["--input", "a", "--input_file", "{file}"]])
def test_exactly_one_kind_of_input_is_needed(tmp_path: Path, arguments):
    """Neither kind, or both, is a usage error."""
    (tmp_path / "in.txt").write_text("x")
    result = invoked(tmp_path, *(a.format(file=tmp_path / "in.txt") for a in arguments))
    assert result.exit_code == 2
    assert "give either --input or --input_file" in result.stderr


def test_overrides_and_context(tmp_path: Path):
    """`-o` changes the config; outside of an evaluation there is no seed, so runs differ."""
    seen = {}

    async def look(question):
        context = Context.get()
        seen.update(seed=context.rollout_seed, evaluating=context.is_evaluating)
        return ""

    scripted = ScriptedWorkflow(tmp_path, look, [])
    with scripted.registered():
        arguments = ["--config_file", str(scripted.config_file), "--input", "x", "-o", "workflow.tone", "loud"]
        assert CliRunner().invoke(run_command, arguments).exit_code == 0
    assert scripted.tones == ["loud"]
    assert seen == {"seed": None, "evaluating": False}
