"""Whole runs with the generic builder and trainer, against a scripted model."""

import asyncio
import json

import pytest

from fakes.finetuning_project import ClumsyTrainer, Coin, FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from nat.errors import ConfigError, DatasetError
from nat.finetuning.progress import RunProgress
from nat.runs.records import Phase, RunState


class RecordedProgress(RunProgress):
    """A listener that keeps the messages of a run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def rollouts_started(self, phase, total):
        self.events.append(f"{phase} {total}")

    def message(self, text):
        self.events.append(text)

    def validation_finished(self, record):
        self.events.append(f"held-out {record.avg_reward}")


class ValidatingTrainer(ClumsyTrainer):
    """A trainer that validates before its first epoch, as trainers of the wider toolkit do."""

    async def run(self, num_epochs):
        self.own = await self.run_validation_evaluation(0, self.run_id)
        return await super().run(num_epochs)


async def test_a_trainer_that_validates_by_itself_plays_nothing_twice(tmp_path):
    """The trainer gets the scores of the run's own first validation, and the verdict uses them."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.trainer_type = ValidatingTrainer
        heard = RecordedProgress()
        with project.registered():
            result = await project.run(heard, validation_dataset=str(project.held_out))
    assert [event for event in heard.events if event.startswith(("validation", "held-out"))] == [
        "validation 8",
        "held-out 0.0",
        "validation 8",
        f"held-out {result.summary.after}",
    ]
    assert result.summary.before == 0.0


async def test_a_run_leaves_everything_it_did(tmp_path):
    """The journal has rollouts, jobs and epochs; the guide's files are derived from it."""
    async with OpenAIServer(Coin(), fingerprint="tiny@0") as server:
        project = FinetuningProject(tmp_path, server)
        project.adapter.outcomes = [{"metadata": {"metrics": {"grad_norm": 2.0}, "policy_version": "tiny@1"}}]
        with project.registered():
            result = await project.run()
    with project.journal() as journal:
        info, epochs, jobs = journal.info(), journal.epochs(), journal.jobs()
        rollouts = list(journal.rollouts(Phase.TRAIN, 0))
    assert info.state is RunState.COMPLETED
    assert [(e.epoch, e.avg_reward, e.num_groups, e.num_trajectories) for e in epochs] == [
        (0, 0.5, 4, 8),
        (1, 0.5, 4, 8),
    ]
    assert epochs[0].metrics["train/grad_norm"] == 2.0
    assert epochs[0].metrics["drift/rows_per_rollout"] == 1.0
    assert {"time/rollout", "time/train", "time/epoch"} <= epochs[0].metrics.keys()
    assert (jobs[0].policy_version, jobs[0].num_rows, jobs[0].tokens_trained > 0) == ("tiny@1", 8, True)
    assert [(r.example_id, r.generation, r.policy_versions) for r in rollouts[:2]] == [
        ("000", 0, {"tiny@0": 1}),
        ("000", 1, {"tiny@0": 1}),
    ]
    assert len((result.run_dir / "trajectories" / "epoch_0001.jsonl").read_text().splitlines()) == 8
    lines = (project.output_dir / "training_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["avg_reward"] for line in lines] == [0.5, 0.5]
    assert (result.run_dir / "reward_plot.png").is_file()


async def test_validation_comes_before_at_the_interval_and_after(tmp_path):
    """Epoch 0 is validated once although run and trainer both request it; later validations follow the interval."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["num_epochs"] = 5
        with project.registered():
            result = await project.run(validation_dataset=str(project.held_out), validation_interval=2)
    with project.journal() as journal:
        assert [v.epoch for v in journal.validations()] == [0, 2, 4, 5]
        assert len(list(journal.rollouts(Phase.VALIDATION, 5))) == 8
    assert result.summary.num_examples == 8
    assert result.comparison is not None


async def test_a_run_ends_before_it_exceeds_its_budget(tmp_path):
    """Calls of agent and judge count, those of validations, too; each epoch takes 8 and each validation 8."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning.update({"num_epochs": 20, "budget": {"limit": 45, "prices": {"student": {"call": 1}}}})
        with project.registered():
            result = await project.run(validation_dataset=str(project.held_out), validation_interval=1)
    with project.journal() as journal:
        epochs, validations, info = journal.epochs(), journal.validations(), journal.info()
    assert [each.usage["rollout"]["student"].calls for each in (*epochs, *validations)] == [8] * 5
    assert [each.metrics["cost/price"] for each in epochs] == [8, 8]
    assert "40 of 45 are spent, and epoch 3 with the validation after it would take about 16" in info.message
    assert (result.summary.epochs, result.summary.cost) == (2, 40)


async def test_the_curriculum_chooses_and_its_state_is_kept(tmp_path):
    """Only the easiest groups are submitted; records of the others say why they were left out."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["curriculum_learning"] = {"enabled": True, "initial_percentile": 0.5}
        with project.registered():
            result = await project.run()
    assert [len(c.trajectories) for c in project.adapter.submitted] == [2, 2]
    state = json.loads((result.run_dir / "curriculum_state.json").read_text())
    assert (state["current_percentile"], state["total_groups"], len(state["included_groups"])) == (0.5, 4, 2)
    with project.journal() as journal:
        assert journal.epochs()[0].left_out == {"the curriculum left its group out": 4}
        assert journal.epochs()[0].curriculum_percentile == 0.5


class SureOfOne(Coin):
    """A model that always answers one of the questions right."""

    def __call__(self, request) -> Say:
        return Say("right") if request.last_text == "q0" else super().__call__(request)


async def test_groups_without_a_difference_are_not_submitted(tmp_path):
    """Groups of equal rewards are left out and counted; the others are trained on."""
    async with OpenAIServer(SureOfOne()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            await project.run()
    assert [len(c.trajectories) for c in project.adapter.submitted] == [3, 3]
    with project.journal() as journal:
        epoch = journal.epochs()[0]
    assert (epoch.groups_without_difference, epoch.filtered_groups) == (1, 3)
    assert epoch.left_out == {"its group has no difference in reward": 2}


async def test_an_adapter_of_a_plug_in_gets_all_groups(tmp_path):
    """Without a curriculum, groups of equal rewards are submitted, as the guide says, unless the adapter drops them."""
    async with OpenAIServer(SureOfOne()) as server:
        project = FinetuningProject(tmp_path, server)
        project.adapter.drops_equal_groups = False
        with project.registered():
            await project.run()
    assert [len(batch.trajectories) for batch in project.adapter.submitted] == [4, 4]
    with project.journal() as journal:
        assert {record.left_out for record in journal.rollouts(Phase.TRAIN, 0)} == {None}
        assert [epoch.filtered_groups for epoch in journal.epochs()] == [4, 4]


async def test_failed_rollouts_are_left_out_and_counted(tmp_path):
    """Failed rollouts make their group smaller, get no reward of 0, and keep their error."""
    coin = Coin()

    async def shaky(question, ask):
        said = await ask(question)
        if question == "q0" and said == "wrong":
            raise RuntimeError("the tool broke")
        return said

    async with OpenAIServer(coin) as server:
        project = FinetuningProject(tmp_path, server, shaky)
        with project.registered():
            await project.run()
    with project.journal() as journal:
        failed = [r for r in journal.rollouts(Phase.TRAIN, 0) if r.error]
        epoch = journal.epochs()[0]
    assert [(r.example_id, r.reward, r.error) for r in failed] == [("000", None, "RuntimeError: the tool broke")]
    assert failed[0].messages[-1]["content"] == "wrong"
    assert epoch.left_out["the workflow raised an error"] == 1
    assert (epoch.num_trajectories, epoch.num_rollouts) == (7, 8)


async def test_a_cancelled_run_is_whole_and_closed(tmp_path):
    """Ctrl-C cancels the main task: rollouts end, the workflow is closed, and the journal says canceled."""
    reached, over, heard = asyncio.Event(), asyncio.Event(), RecordedProgress()

    async def hanging(_request) -> Say:
        reached.set()
        await over.wait()
        return Say()

    async with OpenAIServer(hanging) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            task = asyncio.create_task(project.run(heard))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            others = [t for t in asyncio.all_tasks() if "generation" in t.get_name() or "rollout" in t.get_name()]
        over.set()
    assert others == []
    assert f"The run's records are in {project.output_dir}" in heard.events[-2]
    assert f"nat finetune --resume {project.output_dir}" in heard.events[-1]
    assert project.closed == 1
    with project.journal() as journal:
        assert journal.info().state is RunState.CANCELED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"enabled": False}, "Finetuning is not enabled"),
        ({"reward_function": {"name": "mach"}}, "Did you mean 'match'"),
        ({"reward_function": None}, "no rollout has a reward"),
        ({"early_stopping": {"patience": 1}}, "there is no validation dataset"),
        ({"budget": {"prices": {"studnet": {"call": 1}}}}, "'studnet' is not under llms. Did you mean 'student'"),
    ],
)
async def test_configuration_errors_come_before_anything_runs(tmp_path, change, words):
    """Configuration errors come before the run's folder, the workflow and the backend."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning.update(change)
        with project.registered(), pytest.raises(ConfigError, match=words):
            await project.run()
    assert not project.output_dir.exists()
    assert project.built == 0


async def test_an_unreadable_dataset_is_an_error_before_anything_runs(tmp_path):
    """Both datasets are read before the model is loaded."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered(), pytest.raises(DatasetError):
            await project.run(validation_dataset=str(tmp_path / "missing.json"))
    assert not project.output_dir.exists()


async def test_the_validation_may_have_its_own_workflow(tmp_path):
    """`validation_config_file` is opened once for all validations, beside the training's workflow."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            given = project.given(validation_dataset=str(project.held_out), validation_interval=1)
            other = tmp_path / "validation.yml"
            other.write_text(given.config_file.read_text())
            result = await project.run_given(given.model_copy(update={"validation_config_file": str(other)}))
    assert project.built == 2
    assert result.summary.num_examples == 8


async def test_the_yaml_may_hold_the_runs_settings(tmp_path):
    """`finetuning.run_configuration` sets what the command line leaves out; the command line wins."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["run_configuration"] = {
            "validation_dataset": str(project.held_out),
            "validation_interval": 1,
        }
        with project.registered():
            result = await project.run(validation_interval=2)
    with project.journal() as journal:
        assert [v.epoch for v in journal.validations()] == [0, 2]
    assert result.summary.num_examples == 8
