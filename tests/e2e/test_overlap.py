"""Runs with `max_staleness`: the next epochs are played while the backend trains, and nothing else changes."""

import asyncio
from typing import Any

import pytest

from fakes.finetuning_project import AdapterConfig, Coin, FinetuningProject, RememberingAdapter
from fakes.guide_plugin.my_trainer import MyTrainer
from fakes.openai_server import OpenAIServer, Refuse
from nat.data_models.finetuning import TrainingStatusEnum
from nat.errors import ConfigError, NoTrajectories
from nat.finetuning.progress import RunProgress
from nat.runs.records import Phase, RunState

ROLLOUTS = 8
"""Rollouts of an epoch, each with one call."""


class SlowAdapter(RememberingAdapter):
    """Completes a job when the server has answered `needs` more requests, and then serves new weights."""

    def __init__(self, server: OpenAIServer, *, needs: int = ROLLOUTS) -> None:
        super().__init__(AdapterConfig())
        self.server = server
        self.needs = needs
        self.last_job = 99
        self.failing_job: int | None = None
        self.hanging = asyncio.Event()
        self.meanwhile: list[int] = []
        """Requests that were answered during each job."""

    async def wait_until_complete(self, ref, poll_interval=10.0):
        job, before = ref.metadata["job"], len(self.server.requests)
        while job < self.last_job and len(self.server.requests) < before + self.needs:
            self.hanging.set()
            await asyncio.sleep(0)
        self.meanwhile.append(len(self.server.requests) - before)
        if job == self.failing_job:
            fields = {"status": TrainingStatusEnum.FAILED, "message": "out of memory"}
            return (await self.status(ref)).model_copy(update=fields)
        self.server.fingerprint = version = f"tiny@{4 * (job + 1)}"
        return (await self.status(ref)).model_copy(update={"metadata": {"policy_version": version}})


class Overlap:
    """A project whose server names its weights, with its adapter."""

    def __init__(self, folder, server: OpenAIServer, epochs: int = 3, **changes: Any) -> None:
        self.server = server
        self.project = FinetuningProject(folder, server)
        self.project.adapter = self.adapter = SlowAdapter(server)
        self.adapter.last_job = epochs - 1
        self.project.finetuning.update({"max_staleness": 1, "num_epochs": epochs, **changes})

    async def run(self, progress: RunProgress | None = None, **fields: Any):
        with self.project.registered():
            return await self.project.run(progress, **fields)

    def versions(self, phase: Phase, epoch: int) -> set[str]:
        with self.project.journal() as journal:
            return {version for record in journal.rollouts(phase, epoch) for version in record.policy_versions}


@pytest.fixture
async def server():
    async with OpenAIServer(Coin(), fingerprint="tiny@0") as server:
        yield server


async def test_the_next_epoch_is_played_while_the_backend_trains(tmp_path, server):
    """Its answers come from the weights before the update; records, rows and metrics say so."""
    overlap = Overlap(tmp_path, server)
    await overlap.run()
    assert overlap.adapter.meanwhile == [ROLLOUTS, ROLLOUTS, 0]
    assert [overlap.versions(Phase.TRAIN, epoch) for epoch in range(3)] == [{"tiny@0"}, {"tiny@0"}, {"tiny@4"}]
    with overlap.project.journal() as journal:
        epochs, rows = journal.epochs(), [row for r in journal.rollouts(Phase.TRAIN, 2) for row in r.rows]
    assert [e.metrics["drift/staleness"] for e in epochs] == [0.0, 1.0, 1.0]
    assert [e.metrics["drift/stale_rows"] for e in epochs] == [0.0, 1.0, 1.0]
    assert [0 < e.metrics.get("time/overlapped", 0) <= e.metrics["time/train"] for e in epochs] == [True, True, False]
    assert {span.policy_version for row in rows for span in row.spans} == {"tiny@4"}
    assert [len(collection.trajectories) for collection in overlap.adapter.submitted] == [4, 4, 4]


async def test_validations_have_the_newest_weights(tmp_path, server):
    """A validation waits for update and rollouts, so that nothing in a verdict is stale."""
    overlap = Overlap(tmp_path, server, epochs=4)
    result = await overlap.run(validation_dataset=str(overlap.project.held_out), validation_interval=2)
    assert {epoch: overlap.versions(Phase.VALIDATION, epoch) for epoch in (0, 2, 4)} == {
        0: {"tiny@0"},
        2: {"tiny@8"},
        4: {"tiny@16"},
    }
    assert result.summary.best is not None
    assert result.comparison is not None


async def test_an_update_is_finished_when_the_rollouts_beside_it_fail(tmp_path):
    """The trained epoch is recorded before the run ends with the error of the rollouts."""
    coin, asked = Coin(), []

    def breaks(request):
        asked.append(request)
        return coin(request) if len(asked) <= ROLLOUTS else Refuse(500)

    async with OpenAIServer(breaks, fingerprint="tiny@0") as server:
        overlap = Overlap(tmp_path, server)
        with pytest.raises(NoTrajectories):
            await overlap.run()
    with overlap.project.journal() as journal:
        assert [(job.epoch, job.status) for job in journal.jobs()] == [(0, "completed")]
        assert [epoch.epoch for epoch in journal.epochs()] == [0]
        assert len(list(journal.rollouts(Phase.TRAIN, 1))) == ROLLOUTS
        assert journal.info().state is RunState.FAILED


async def test_a_cancelled_run_ends_rollouts_and_update(tmp_path, server):
    """Ctrl-C while both go on leaves no task behind, and a journal that says canceled."""
    overlap = Overlap(tmp_path, server)
    overlap.adapter.needs = 10**6
    task = asyncio.create_task(overlap.run())
    await overlap.adapter.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [t for t in asyncio.all_tasks() if "generation" in t.get_name() or "rollout" in t.get_name()]
    assert overlap.project.closed == 1
    with overlap.project.journal() as journal:
        assert journal.info().state is RunState.CANCELED
        assert [(job.epoch, job.status) for job in journal.jobs()] == [(0, "pending")]


async def test_a_server_that_never_takes_new_weights_ends_the_run(tmp_path, server):
    """If every rollout is too old, the error says why and names the remedy."""
    overlap = Overlap(tmp_path, server, epochs=4)
    complete = overlap.adapter.wait_until_complete

    async def stuck(ref, poll_interval=10.0):
        status = await complete(ref)
        server.fingerprint = "tiny@0"
        return status

    overlap.adapter.wait_until_complete = stuck
    with pytest.raises(NoTrajectories, match="more than max_staleness updates ago") as raised:
        await overlap.run()
    assert "system_fingerprint" in raised.value.hint
    assert len(overlap.adapter.submitted) == 2


class InTurn(MyTrainer):
    def __init__(self, config, _cleanup_error):
        super().__init__(config)


async def test_a_trainer_that_cannot_play_ahead_is_an_error(tmp_path, server):
    """An option without an effect is an error."""
    overlap = Overlap(tmp_path, server)
    overlap.project.trainer_type = InTurn
    with pytest.raises(ConfigError, match=r"finetuning\.max_staleness: 1, but InTurn plays no epoch ahead"):
        await overlap.run()


async def test_the_best_weights_need_a_validation_dataset(tmp_path, server):
    """The reward of an epoch that was played ahead measures weights that are gone: none are called the best."""
    overlap = Overlap(tmp_path, server)
    result = await overlap.run()
    assert result.summary.best is None
    overlap.project.finetuning["export_best"] = True
    with pytest.raises(ConfigError, match=r"finetuning\.export_best: without a validation dataset"):
        await overlap.run()
