"""What is recorded is warned of once, and memory is freed."""

import gc
import weakref

import pytest

from fakes.finetuning_project import AdapterConfig, RememberingAdapter
from fakes.run_records import NOON, epoch_record, rollout_record
from fakes.training_rows import row_of
from nat.data_models.finetuning import GuardsConfig, TrajectoryCollection
from nat.finetuning.alarms import alarms
from nat.finetuning.epoch import PlayedEpoch
from nat.finetuning.recorder import (
    EPOCHS_PER_COLLECTION,
    EPOCHS_PER_PLOT,
    record_epoch,
    record_finished,
    record_rollouts,
    record_submitted,
    warn_of,
)
from nat.finetuning.run_context import RunContext
from nat.finetuning.run_log import RunLog
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME
from nat.runs.token_mismatch import RowMismatch
from nat.wire.training import JobStatus


class Node:
    """An object that refers to itself."""

    def __init__(self):
        self.itself = self


def test_what_was_warned_of_is_not_explained_again(tmp_path, caplog):
    """The diagnosis after a validation then has its number alone; a warning that lasts is not repeated."""
    found = alarms([epoch_record(metrics={"rollout/truncated": 0.5})], GuardsConfig())
    with Journal.create(tmp_path, "run-1", "config: 1\n", created_at=NOON) as journal:
        run = RunContext("run-1", RunLog(journal))
        for epoch, before in enumerate([(), {"truncation"}, {"truncation"}]):
            warn_of(run, epoch, found, before=before)
    assert [text.partition(":")[0] for text in caplog.messages] == ["Epoch 1"]
    assert run.explained == {"truncation"}


@pytest.mark.parametrize("state", [JobStatus.COMPLETED, JobStatus.FAILED])
async def test_a_completed_job_has_what_its_adapter_knows_of_its_tokens(tmp_path, state):
    """Whoever records its end: the trainer, one that is watched, or an interruption."""
    row = row_of([1, 2, 9], [None, -2.0, -0.5])
    span = row.spans[0].model_copy(update={"teacher_logprobs": [-1.0, None]})
    sent = RowMismatch(row.model_copy(update={"spans": [span]}), bytes(4))
    records, nothing = [rollout_record(rows=[row])], TrajectoryCollection(trajectories=[], run_id="run-1")

    class Knowing(RememberingAdapter):
        async def token_mismatch(self, ref):
            return [sent]

    adapter, played = Knowing(AdapterConfig()), PlayedEpoch(0, "run-1", nothing, nothing, records)
    with Journal.create(tmp_path, "run-1", "config: 1\n", created_at=NOON) as journal:
        run = RunContext("run-1", RunLog(journal))
        record_rollouts(run, 0, records)
        ref = await adapter.submit(nothing)
        job = record_submitted(run, played, ref)
        await record_finished(run, job, played, ref.reported(state), adapter=adapter, ref=ref)
        (found,) = journal.trained_rollouts(0)
        done = state is JobStatus.COMPLETED
        assert found.rows == [sent.row if done else row]
        assert journal.mismatch(0, found.example_id) == (sent.differences if done else None)


async def test_cycles_of_many_epochs_are_freed(tmp_path):
    """Garbage collection is rare in a command, so memory is collected every few epochs."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    garbage = weakref.ref(Node())
    assert garbage() is not None
    with Journal.create(run_dir, "run-1", "config: 1\n", created_at=NOON) as journal:
        run = RunContext("run-1", RunLog(journal))
        gc.disable()
        try:
            for epoch in range(EPOCHS_PER_COLLECTION):
                await record_epoch(run, epoch_record(epoch))
        finally:
            gc.enable()
    assert garbage() is None
    assert (run_dir / PLOT_NAME).exists() == (EPOCHS_PER_COLLECTION >= EPOCHS_PER_PLOT)
