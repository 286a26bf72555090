"""Epochs are played ahead, as many as `max_staleness` allows, and no token is trained that is older."""

import asyncio
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.finetuning_project import AdapterConfig, BuilderConfig, EpochTrainerConfig, RememberingAdapter
from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.data_models.finetuning import FinetuneConfig, Trajectory, TrajectoryCollection
from nat.errors import RunFailed
from nat.finetuning.ahead import CollectedRollouts, RolloutsAhead
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.trainer import EpochTrainer
from nat.runs.journal import Journal
from nat.runs.records import EpochRecord
from nat.runs.rollouts import LeftOutCause

EPOCHS = 6
GROUPS = GENERATIONS = CALLS = 2


class World:
    """A server and a learner, whose waits are turns of the event loop."""

    def __init__(self, random: Random, *, slowest_rollout: int, slowest_update: int, lag: int) -> None:
        self.random = random
        self.slowest_rollout, self.slowest_update, self.lag = slowest_rollout, slowest_update, lag
        self.updates = 0
        self.served = 0
        """The update whose weights answer; `lag` updates behind at the most."""
        self.update_turns = 0
        """The fewest turns of an update."""
        self.begun: list[tuple[int, int]] = []
        """Of each epoch, its number and the updates when its rollouts began."""
        self.trained: list[list[int]] = []
        """The ages of the calls of each batch, in updates."""

    async def turns(self, most: int) -> None:
        for _ in range(self.random.randint(0, most)):
            await asyncio.sleep(0)

    def update(self) -> str:
        self.updates += 1
        self.served = max(self.served, self.updates - self.random.randint(0, self.lag))
        return f"m@{self.updates}"


class Builder(TrajectoryBuilder):
    """Plays rollouts of two calls, each answered by the weights that are served then."""

    def __init__(self, world: World) -> None:
        super().__init__(BuilderConfig())
        self.world = world
        self.records = []

    async def start_run(self, run_id, meta=None):
        self.world.begun.append((meta["epoch"], self.world.updates))

    async def finalize(self, run_id, meta=None):
        keys = [(f"q{group}", generation) for group in range(GROUPS) for generation in range(GENERATIONS)]
        self.records = await asyncio.gather(*(self._rollout(*key) for key in keys))
        made = [_trajectory(record) for record in self.records]
        groups = [made[at : at + GENERATIONS] for at in range(0, len(made), GENERATIONS)]
        return TrajectoryCollection(trajectories=groups, run_id=run_id)

    async def _rollout(self, example, generation):
        versions = []
        for _ in range(CALLS):
            await self.world.turns(self.world.slowest_rollout)
            versions.append(f"m@{self.world.served}")
        row = row_of([0, 0] * CALLS, [None, -1.0] * CALLS, versions=versions)
        counts = {version: versions.count(version) for version in versions}
        return rollout_record(example, generation, policy_versions=counts, rows=[row])

    def rollouts(self, run_id):
        return self.records

    async def abandon(self, run_id):
        pass

    def log_progress(self, run_id, metrics, output_dir=None):
        pass


def _trajectory(record):
    versions = [int(span.policy_version.removeprefix("m@")) for row in record.rows for span in row.spans]
    metadata = {"id": record.example_id, "generation": record.generation, "versions": versions}
    return Trajectory(episode=[], reward=float(record.generation), metadata=metadata)


class Learner(RememberingAdapter):
    """Trains for some turns, and then names the new weights."""

    def __init__(self, world: World) -> None:
        super().__init__(AdapterConfig())
        self.world = world

    async def wait_until_complete(self, ref, poll_interval=10.0):
        await self.world.turns(self.world.slowest_update)
        for _ in range(self.world.update_turns):
            await asyncio.sleep(0)
        return (await self.status(ref)).model_copy(update={"metadata": {"policy_version": self.world.update()}})

    async def submit(self, trajectories):
        batch = [t.metadata["versions"] for group in trajectories.trajectories for t in group]
        self.world.trained.append([self.world.updates - version for versions in batch for version in versions])
        return await super().submit(trajectories)


async def epochs_of(world: World, folder: Path, max_staleness: int) -> list[EpochRecord]:
    """Run all epochs, unless too few rollouts are left to go on."""
    trainer = EpochTrainer(EpochTrainerConfig())
    await trainer.bind_components(Builder(world), Learner(world))
    config = FinetuneConfig(output_dir=folder, max_staleness=max_staleness, num_epochs=EPOCHS, max_failure_rate=1.0)
    await trainer.initialize(config)
    try:
        with suppress(RunFailed):
            await trainer.run(EPOCHS)
    finally:
        await trainer.cleanup()
    with Journal.open(folder / "latest", read_only=True) as journal:
        return journal.epochs()


turns = st.sampled_from([0, 1, 3, 20])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    bound=st.integers(0, 3),
    rollouts=turns,
    updates=turns,
    lag=st.integers(0, 4),
    random=st.randoms(use_true_random=False),
)
def test_no_trained_token_is_older_than_the_bound(bound, rollouts, updates, lag, random):
    """Whatever rollouts and updates take, and however late the server takes new weights; drops are counted.

    With a prompt server, admission alone keeps the bound: nothing is dropped.
    """
    world = World(random, slowest_rollout=rollouts, slowest_update=updates, lag=lag)
    with tempfile.TemporaryDirectory() as folder:
        epochs = asyncio.run(epochs_of(world, Path(folder), bound))
    ages = [age for batch in world.trained for age in batch]
    assert not bound or all(0 <= age <= bound for age in ages)
    assert [epoch for epoch, _ in world.begun] == [*range(len(world.begun))]
    for epoch in epochs:
        dropped = epoch.left_out.get(LeftOutCause.TOO_STALE, 0)
        assert epoch.num_trajectories + dropped == GROUPS * GENERATIONS
        assert (epoch.metrics.get("drift/dropped_groups", 0) > 0) == (dropped > 0)
        assert epoch.metrics.get("drift/staleness_max", 0) <= bound
    if lag == 0:  # else an epoch whose rollouts were all dropped has no update
        assert all(epoch - updates <= bound for epoch, updates in world.begun)
        assert (len(epochs), sum(map(len, world.trained))) == (EPOCHS, EPOCHS * GROUPS * GENERATIONS * CALLS)
        assert bound or not any(ages)


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_rollouts_are_played_as_far_ahead_as_the_bound_allows(tmp_path, bound):
    """Beside a slow learner, so many epochs are begun with the weights of the first one; then they wait for weights."""
    world = World(Random(0), slowest_rollout=0, slowest_update=0, lag=0)
    world.update_turns = 200
    epochs = asyncio.run(epochs_of(world, tmp_path, bound))
    assert world.begun == [(epoch, max(0, epoch - bound)) for epoch in range(EPOCHS)]
    assert [max(batch) for batch in world.trained] == [min(epoch, bound) for epoch in range(EPOCHS)]
    waiting = [epoch.metrics.get("time/waiting_for_weights", 0.0) > 0 for epoch in epochs]
    assert waiting == [epoch + bound + 1 < EPOCHS for epoch in range(EPOCHS)]


async def play(log: list[str], name: str, error: Exception | None = None) -> CollectedRollouts:
    log.append(name)
    await asyncio.sleep(0)
    if error is not None:
        raise error
    return CollectedRollouts(TrajectoryCollection(trajectories=[], run_id=name), [], 1.0)


async def test_after_a_failed_epoch_none_is_played():
    """Its error is raised where each of them is taken."""
    ahead, log = RolloutsAhead(), []
    ahead.admit(0, partial(play, log, "a", RuntimeError("lost")))
    ahead.admit(1, partial(play, log, "b"))
    for _ in "ab":
        with pytest.raises(RuntimeError, match="lost"):
            await ahead.take()
    assert log == ["a"]
