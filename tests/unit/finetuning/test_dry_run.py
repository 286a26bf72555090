import json
import sys

import pytest

from fakes.finetuning_project import Coin, FinetuningProject, forecast_with
from fakes.openai_server import OpenAIServer
from nat.errors import ConfigError, DatasetError
from nat.finetuning.dry_run import dry_run
from nat.finetuning.progress import RunProgress
from nat.sizing.forecast import ForecastRequest


class RecordedProgress(RunProgress):
    """A listener that keeps the messages."""

    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)


async def test_a_dry_run_resolves_counts_builds_and_plays_one_example_with_a_script(tmp_path):
    """The plan has the run's numbers; no request is sent to the model and no folder is created."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out), validation_interval=3))
        assert server.requests == []
    [stage] = plan.stages
    assert (plan.num_examples, stage.num_generations, stage.rollouts_per_epoch) == (4, 2, 8)
    assert (plan.num_held_out, plan.validation_interval) == (8, 3)
    parts = (stage.trainer, stage.trajectory_builder, stage.trainer_adapter)
    assert parts == ("test_trainer", "test_builder", "test_adapter")
    assert plan.warnings == []
    assert (project.built, project.closed) == (2, 2)
    assert not project.output_dir.exists()


async def test_a_dry_run_warns_of_settings_that_cannot_work(tmp_path):
    """One generation has nothing to compare with; training data cannot show an improvement."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trajectory_builders"]["builder"]["num_generations"] = 1
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.dataset)))
    assert len(plan.warnings) == 2
    assert "4 held-out examples are in the training dataset, too" in plan.warnings[0]
    assert plan.warnings[1].startswith("trajectory_builders.builder.num_generations is 1: a rollout is compared with")


async def test_a_misspelt_answer_column_is_a_warning(tmp_path, monkeypatch):
    """Plan and run warn for both datasets, since the project's evaluator does not declare that it compares."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    heard = RecordedProgress()
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        (tmp_path / "score_of_all.py").write_text("def score(item, output): return output == 'right'")
        function = f"{tmp_path}/score_of_all.py:score"
        project.config["eval"]["evaluators"]["match"] = {"_type": "python", "function": function}
        project.write_rows(project.held_out.name, 3, question="held-out", anwser="right")
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
            await project.run(heard, validation_dataset=str(project.held_out))
    told = "there is no column 'answer', so evaluators get no expected answer. Did you mean 'anwser'?"
    assert [told in "".join(texts) for texts in (plan.warnings, heard.messages)] == [True, True]


async def test_shared_examples_are_found_by_their_content(tmp_path):
    """Two of eight held-out examples are trained on, from another file and with other ids."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        rows = json.loads(project.held_out.read_text())
        rows[3]["question"], rows[5]["question"] = "q2", "q0"
        project.held_out.write_text(json.dumps(rows))
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
            heard = RecordedProgress()
            await project.run(heard, validation_dataset=str(project.held_out))
    [warning] = plan.warnings
    assert warning.startswith("2 held-out examples are in the training dataset, too:")
    assert warning in heard.messages


@pytest.mark.parametrize("which", ["training", "held-out"])
async def test_a_dataset_without_the_answers_that_the_reward_needs_is_an_error(tmp_path, which):
    """The error before anything is built has the file, its columns, and the option for another column."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        name = {"training": project.dataset, "held-out": project.held_out}[which].name
        project.write_rows(name, 3, question=which, anwser="right")
        with project.registered(), pytest.raises(DatasetError) as caught:
            await dry_run(project.given(validation_dataset=str(project.held_out)))
        assert (project.built, server.requests) == (0, [])
    text = str(caught.value)
    assert f"{name}: no row has an expected answer, and eval.evaluators.match cannot score without" in text
    assert "there is no column 'answer'. Did you mean 'anwser'? Columns: anwser, id, question." in text
    assert "eval.general.dataset.structure.answer_key" in text


async def test_what_does_not_fit_is_an_error_with_what_does(tmp_path):
    """The error has the bytes, what is free, and the ways that fit; the backend is asked about an epoch."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        project.adapter.forecasted = forecast_with(available=3 * 10**9)
        with project.registered(), pytest.raises(ConfigError) as caught:
            await dry_run(project.given())
    text = str(caught.value)
    assert "llms.student: training all weights, float32 takes 8.0 GB" in text
    assert "3.0 GB are free" in text
    assert "these fit: LoRA, rank 16, float32 (2.0 GB)" in text
    assert project.adapter.forecasts == [ForecastRequest(num_rollouts=8, chats=4)]
