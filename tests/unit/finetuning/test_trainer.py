import pytest

from fakes.finetuning_project import AdapterConfig, BuilderConfig, EpochTrainerConfig, RememberingAdapter
from nat.data_models.finetuning import FinetuneConfig, Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories
from nat.finetuning.finetuning_runtime import run_finetuning
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.trainer import EpochTrainer
from nat.runs.journal import Journal
from nat.runs.records import RunState


class ByHand(TrajectoryBuilder):
    """A plug-in's builder without records of its rollouts."""

    def __init__(self, *rewards, **fields):
        super().__init__(BuilderConfig())
        self.rewards = rewards
        self.fields = {"episode": [], "metadata": {"id": "a"}, **fields}
        self.abandoned = []

    async def start_run(self, run_id, meta=None):
        self.meta = meta

    async def finalize(self, run_id, meta=None):
        if self.rewards == ("broken",):
            raise RuntimeError("no rows")
        group = [Trajectory(reward=reward, **self.fields) for reward in self.rewards]
        return TrajectoryCollection(trajectories=[group] if group else [], run_id=run_id)

    async def abandon(self, run_id):
        self.abandoned.append(run_id)

    def log_progress(self, run_id, metrics, output_dir=None):
        pass


async def trainer_with(builder, tmp_path, **fields):
    trainer = EpochTrainer(EpochTrainerConfig())
    await trainer.bind_components(builder, RememberingAdapter(AdapterConfig()))
    await trainer.initialize(FinetuneConfig(output_dir=tmp_path / "out", **fields))
    return trainer


async def test_a_trainer_without_the_runtime_makes_a_run_folder(tmp_path):
    """A trainer that is called directly, as in a plug-in's tests, starts its own run."""
    trainer = await trainer_with(ByHand(0.0, 1.0), tmp_path, num_epochs=2)
    statuses = await run_finetuning(trainer)
    assert [status.status for status in statuses] == ["completed"] * 2
    with Journal.open(tmp_path / "out" / "latest", read_only=True) as journal:
        assert [epoch.avg_reward for epoch in journal.epochs()] == [0.5, 0.5]
        assert journal.info().run_id == trainer.context.run_id
        assert journal.info().state is RunState.COMPLETED


async def test_the_builder_gets_the_epoch_and_is_abandoned_on_an_error(tmp_path):
    """The builder's `abandon` is called before the error is raised."""
    builder = ByHand("broken")
    trainer = await trainer_with(builder, tmp_path)
    with pytest.raises(RuntimeError, match="no rows"):
        await trainer.run(1)
    await trainer.cleanup()
    assert builder.meta["epoch"] == 0
    assert builder.abandoned == [trainer.context.run_id]


async def test_the_log_lines_are_those_of_the_guide(tmp_path, caplog):
    """The log has the lines that users of the guide search for."""
    caplog.set_level("INFO")
    trainer = await trainer_with(ByHand(0.0, 1.0), tmp_path)
    await trainer.run(1)
    await trainer.cleanup()
    run_id = trainer.context.run_id
    wanted = [
        "Starting finetuning run with 1 epochs",
        f"Starting epoch 1 for run {run_id}",
        "Collected 2 trajectories in 1 groups for epoch 1",
        "Submitted 2 trajectories in 1 groups for training",
        f"Training {run_id} completed successfully.",
        "Epoch 1 progress logged - Avg Reward: 0.5000, Trajectories: 2",
        "Completed epoch 1/1",
        "Finetuning run completed. Processed 1 epochs",
    ]
    assert [message for message in caplog.messages if message in wanted] == wanted


@pytest.mark.parametrize(("reward", "said"), [(float("nan"), "nan"), (1e308, "larger than")])
async def test_an_invalid_reward_ends_the_run_with_what_is_wrong(tmp_path, reward, said):
    """Another builder may give any float; means, variances and advantages would overflow silently."""
    trainer = await trainer_with(ByHand(0.5, reward), tmp_path)
    with pytest.raises(InvalidTrajectories, match=f"1 of 2 trajectories .* the reward is {said}"):
        await trainer.run(1)
    await trainer.cleanup()
