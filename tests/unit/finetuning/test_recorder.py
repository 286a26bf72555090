"""What is recorded is warned of once, and memory is freed."""

import gc
import weakref

from fakes.run_records import NOON, epoch_record
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.catalogue import alarms
from nat.finetuning.recorder import (
    EPOCHS_PER_COLLECTION,
    EPOCHS_PER_PLOT,
    record_epoch,
    warn_of,
)
from nat.finetuning.run_context import RunContext
from nat.finetuning.run_log import RunLog
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME


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
