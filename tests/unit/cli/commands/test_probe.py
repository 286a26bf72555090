"""`nat probe` from its arguments to its page; the model is a scripted server."""

import asyncio
import json
import string

from fakes.finetuning_project import FinetuningProject
from fakes.runs_on_disk import EVIL
from fakes.served_workflow import serving_file, url_of
from nat.cli.main import exit_code


async def nat(project: FinetuningProject, *arguments: str) -> int:
    """Run the command in a thread, so that the server in this loop can answer it."""
    path = project.given().config_file
    return await asyncio.to_thread(exit_code, ["--log-level", "error", "probe", "--config_file", str(path), *arguments])


async def report(project: FinetuningProject, capsys, *arguments: str) -> dict:
    assert await nat(project, "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)


async def test_the_page(project, capsys):
    """It has the facts, the verdict and what to do next."""
    assert await nat(project) == 0
    shown = capsys.readouterr().out
    for line in (
        "8 rollouts, nothing trained",
        "0% of the rollouts hit a token limit",
        "match: mean 0.500, from 0 to 1",
        "4 of 4 have a difference in reward (100%, 95% interval 40% to 100%)",
        "has a signal: 4 of 4 groups have a difference in reward.",
        "Next: train it: nat finetune --config_file",
    ):
        assert line in shown
    assert not project.adapter.submitted


async def test_answers_without_a_difference(project, capsys):
    """The finding comes with its remedy, and the command fails."""

    async def constant(question, ask):
        await ask(question)
        return "right"

    project.agent = constant
    assert await nat(project, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["num_differing"], found["num_groups"], found["has_signal"]) == (0, 4, False)
    assert found["next_step"].startswith(found["findings"][0]["remedy"])


async def test_an_answer_cannot_control_the_terminal(project, capsys):
    """What the model wrote is escaped."""

    async def hostile(question, ask):
        raise ValueError(f"{await ask(question)}{EVIL}")

    project.agent = hostile
    assert await nat(project) == 1
    shown = capsys.readouterr().out
    assert "\\x1b[2J" in shown
    assert not set(EVIL) & set(shown) - set(string.printable)


async def test_options_have_an_effect(project, capsys):
    """Examples, dataset and overrides are those of the command line."""
    found = await report(project, capsys, "--examples", "3", "-o", "trajectory_builders.builder.num_generations", "4")
    assert (found["num_groups"], found["num_examples"], found["num_rollouts"]) == (3, 4, 12)
    found = await report(project, capsys, "--dataset", str(project.write_rows("two.json", 2)))
    assert (found["num_groups"], found["num_examples"]) == (2, 2)


async def test_the_output_file_has_the_rollouts_and_no_secrets(project, capsys, tmp_path):
    """The file has the report and each rollout's conversation, score and error; a remedy names it."""
    key = project.config["llms"]["student"]["api_key"] = "sk-THIS-is-a-Secret-Key-0123456789"

    async def leaky(question, ask):
        raise ValueError(f"not with {key}")

    project.agent = leaky
    file = tmp_path / "deep" / "probe.json"
    assert await nat(project, "--output", str(file)) == 1
    shown = capsys.readouterr()
    record = json.loads(text := file.read_text())
    assert len(record["rollouts"]) == record["report"]["num_rollouts"] == 8
    assert all("ValueError" in each["traceback"] for each in record["rollouts"])
    assert key not in text
    assert "nat probe --output FILE" in shown.out
    assert "failures.txt" not in shown.out + shown.err


async def test_a_workflow_that_runs_elsewhere(project, capsys):
    """With `--endpoint` the served workflow plays the rollouts, and the numbers are the same."""
    here = await report(project, capsys)
    async with serving_file(project.given().config_file) as client:
        there = await report(project, capsys, "--endpoint", url_of(client), "--endpoint_timeout", "30")
    assert (here["num_rollouts"], here["left_out"]) == (there["num_rollouts"], there["left_out"]) == (8, {})
