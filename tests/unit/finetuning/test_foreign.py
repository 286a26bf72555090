"""What the components of a trainer that keeps no records tell the run."""

from collections.abc import Iterator

import pytest

from fakes.finetuning_project import AdapterConfig, RememberingAdapter
from fakes.run_records import NOON
from nat.data_models.finetuning import (
    EpisodeItem,
    FinetuneConfig,
    TrainerConfig,
    Trajectory,
    TrajectoryBuilderConfig,
    TrajectoryCollection,
)
from nat.errors import NoTrajectories, RunFailed
from nat.finetuning import Trainer, TrajectoryBuilder
from nat.finetuning.foreign import run_foreign
from nat.finetuning.run_log import RunLog
from nat.runs.journal import Journal
from nat.runs.records import Phase


def rollout(reward: float, example: str = "a") -> Trajectory:
    answer = {"role": "assistant", "content": f"{reward}", "logprobs": [-0.5, -0.5]}
    items = [EpisodeItem(role="user", content="?"), EpisodeItem(**answer)]
    return Trajectory(episode=items, reward=reward, metadata={"id": example})


class Builder(TrajectoryBuilder):
    """Gives the same groups in each epoch, as copies."""

    def __init__(self, *groups: list[Trajectory]) -> None:
        super().__init__(TrajectoryBuilderConfig())
        self.groups = [list(group) for group in groups]
        self.asked: list[str] = []
        """The runs whose records were asked for."""

    async def start_run(self, run_id, meta=None):
        pass

    async def finalize(self, run_id, meta=None):
        return TrajectoryCollection(trajectories=self.groups, run_id=run_id)

    def rollouts(self, run_id):
        self.asked.append(run_id)
        return []

    def log_progress(self, run_id, metrics, output_dir=None):
        pass


class LoopTrainer(Trainer):
    """Has its whole loop in `run`, and submits the first groups only."""

    submits = 1

    async def run(self, num_epochs):
        return [await self.train(epoch) for epoch in range(num_epochs)]

    async def train(self, epoch):
        await self.trajectory_builder.start_run("r")
        collected = await self.trajectory_builder.finalize(meta={"epoch": epoch}, run_id="r")
        chosen = TrajectoryCollection(trajectories=collected.trajectories[: self.submits], run_id="r")
        ref = await self.trainer_adapter.submit(trajectories=chosen)
        return await self.trainer_adapter.wait_until_complete(ref)

    async def run_epoch(self, epoch, run_id):
        raise NotImplementedError

    async def get_metrics(self, run_id):
        return {}

    async def cleanup(self):
        pass

    def log_progress(self, epoch, metrics, output_dir=None):
        pass


@pytest.fixture
def run(tmp_path) -> Iterator[RunLog]:
    with Journal.create(tmp_path, "run-1", "config: 1", created_at=NOON) as journal:
        yield RunLog(journal)


async def train(trainer: Trainer, builder: Builder, run: RunLog, epochs: int = 2) -> RememberingAdapter:
    adapter = RememberingAdapter(AdapterConfig())
    await trainer.bind_components(builder, adapter)
    await trainer.initialize(FinetuneConfig(output_dir=str(run.journal.run_dir)))
    await run_foreign(trainer, builder, adapter, run, epochs)
    return adapter


async def test_a_trainer_without_run_epoch_is_recorded(run):
    """An epoch goes from one `finalize` to the next; groups that are not submitted are marked; numbers are kept."""
    await train(LoopTrainer(TrainerConfig()), Builder([rollout(0), rollout(1)], [rollout(1, "b")]), run)
    epochs = run.journal.epochs()
    assert [(e.epoch, e.num_groups, e.filtered_groups, e.avg_reward) for e in epochs] == [
        (0, 2, 1, 2 / 3),
        (1, 2, 1, 2 / 3),
    ]
    left_out = [record.left_out is not None for record in run.journal.rollouts(Phase.TRAIN, 0)]
    assert left_out == [False, False, True]
    assert [(job.status.value, job.tokens_trained) for job in run.journal.jobs()] == [("completed", 4)] * 2


async def test_an_epoch_that_was_trained_is_kept_when_the_trainer_fails(run):
    """Its weights can be judged, so the run must know of it."""
    trainer = LoopTrainer(TrainerConfig())
    builder = Builder([rollout(0), rollout(1)])
    trained = trainer.train

    async def twice(epoch):
        if epoch == 1:
            raise OSError("disk full")
        return await trained(epoch)

    trainer.train = twice
    with pytest.raises(OSError, match="disk full"):
        await train(trainer, builder, run)
    assert [epoch.epoch for epoch in run.journal.epochs()] == [0]


async def test_a_trainer_that_submits_nothing_fails_the_run(run):
    """Completed jobs of empty batches have trained nothing."""
    trainer = LoopTrainer(TrainerConfig())
    trainer.submits = 0
    with pytest.raises(RunFailed, match="of 4 trajectories it submitted none to RememberingAdapter"):
        await train(trainer, Builder([rollout(0), rollout(1)]), run)


async def test_a_builder_that_plays_nothing_is_told_so(run):
    """The message says which method has to play."""
    with pytest.raises(NoTrajectories, match="Builder gave no trajectory") as raised:
        await train(LoopTrainer(TrainerConfig()), Builder(), run)
    assert "let `start_run` of Builder await self.run_eval()" in str(raised.value)
