"""`nat finetune` from its arguments to what it prints; the model is a scripted server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.cli.main import exit_code
from nat.runs.records import Phase


@pytest.fixture
async def project(tmp_path) -> AsyncIterator[FinetuningProject]:
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            yield project


async def nat(project: FinetuningProject, *arguments: str) -> int:
    """The command in a thread, so that the server of this loop can answer it."""
    path = project.given().config_file
    assert isinstance(path, Path)
    return await asyncio.to_thread(
        exit_code, ["--log-level", "error", "finetune", "--config_file", str(path), *arguments]
    )


def validated_epochs(project: FinetuningProject) -> list[int]:
    with project.journal() as journal:
        return [record.epoch for record in journal.validations()]


async def test_the_summary_says_the_verdict_and_where_everything_is(project, capsys):
    """A person reads the verdict in words, the numbers behind it, and the paths."""
    assert await nat(project, "--validation_dataset", str(project.held_out)) == 0
    shown = capsys.readouterr().out
    for label in ("Trained", "Folder", "Plot"):
        assert f"\n{label} " in shown
    run_dir = (project.output_dir / "latest").resolve()
    assert f"Folder   {run_dir}\n" in shown
    assert f"Plot     {run_dir / 'reward_plot.png'}" in shown


async def test_the_trained_model_comes_with_the_command_that_uses_it(project, capsys):
    """Who has a new model is told how to run the same workflow with it."""
    with_llm = project.adapter.adapter_config.model_copy(update={"llm": "student"})
    project.adapter.adapter_config = with_llm
    project.config["trainer_adapters"]["adapter"]["llm"] = "student"
    project.adapter.exported = project.folder / "elsewhere" / "model"
    assert await nat(project) == 0
    assert "-o llms.student.model " in capsys.readouterr().out


async def test_json_is_one_object_on_stdout(project, capsys):
    """A machine gets `summary.json` and the run's folder, and nothing else."""
    assert await nat(project, "--validation_dataset", str(project.held_out), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    written = json.loads((Path(told["run_dir"]) / "summary.json").read_text())
    assert {**written, "run_dir": told["run_dir"]} == told


async def test_dry_run_shows_the_plan_and_trains_nothing(project, capsys):
    """The plan has the numbers of the run and the resolved YAML; no file is written and no model is asked."""
    assert await nat(project, "--validation_dataset", str(project.held_out), "--dry_run") == 0
    shown = capsys.readouterr().out
    assert "8 per epoch, from 4 examples, 4 at a time" in shown
    assert "8 examples, before, every 5 epochs, and after" in shown
    assert "num_generations: 2" in shown
    assert not project.output_dir.exists()
    assert not project.adapter.submitted


async def test_dry_run_as_json(project, capsys):
    """The plan is a record too."""
    assert await nat(project, "--dry_run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["num_examples"] == 4


async def test_override_has_an_effect(project):
    """`-o` changes the value in the YAML."""
    assert await nat(project, "-o", "finetuning.num_epochs", "1") == 0
    assert len(project.adapter.submitted) == 1


async def test_dataset_has_an_effect(project):
    """`--dataset` replaces the rows that are trained on."""
    assert await nat(project, "--dataset", str(project.write_rows("two.json", 2))) == 0
    assert [len(collection.trajectories) for collection in project.adapter.submitted] == [2, 2]


async def test_validation_interval_has_an_effect(project):
    """Validations come before the first and after the last epoch, and as often in between as asked."""
    assert await nat(project, "--validation_dataset", str(project.held_out)) == 0
    assert validated_epochs(project) == [0, 2]
    assert await nat(project, "--validation_dataset", str(project.held_out), "--validation_interval", "1") == 0
    assert validated_epochs(project) == [0, 1, 2]


async def test_validation_config_file_has_an_effect(project):
    """Held-out examples are scored by the other YAML's evaluator, which here reads the score from the answer."""
    project.agent = lambda question, ask: asyncio.sleep(0, "0.25") if question in held_out else ask(question)
    held_out = {f"held out {i}" for i in range(8)}
    rows = [{"id": text, "question": text, "answer": ""} for text in sorted(held_out)]
    project.held_out.write_text(json.dumps(rows))
    other = project.folder / "validation.yml"
    project.config["eval"]["evaluators"]["match"] = {"_type": "json_path_score", "path": "$"}
    project.given().config_file.rename(other)
    project.config["eval"]["evaluators"]["match"] = {"_type": "exact_match"}
    arguments = ("--validation_dataset", str(project.held_out), "--validation_config_file", str(other))
    assert await nat(project, *arguments) == 0
    with project.journal() as journal:
        assert [record.avg_reward for record in journal.validations()] == [0.25, 0.25]
        assert journal.epochs()[0].avg_reward == 0.5


async def test_result_json_path_has_an_effect(project):
    """The answer is taken from inside the workflow's output."""

    async def wrapped(question, ask):
        return json.dumps({"answer": await ask(question)})

    project.agent = wrapped
    assert await nat(project) == 1
    assert await nat(project, "--result_json_path", "$.answer") == 0
    with project.journal() as journal:
        assert {record.reward for record in journal.rollouts(Phase.TRAIN, 0)} == {0.0, 1.0}
