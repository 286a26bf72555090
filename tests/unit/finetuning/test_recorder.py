"""What is recorded is warned of once, and memory is freed."""

from fakes.run_records import NOON, epoch_record
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.catalogue import alarms
from nat.finetuning.recording_trainer import (
    warn_of,
)
from nat.finetuning.run_context import RunContext
from nat.finetuning.run_log import RunLog
from nat.runs.journal import Journal


def test_what_was_warned_of_is_not_explained_again(tmp_path, caplog):
    """The diagnosis after a validation then has its number alone; a warning that lasts is not repeated."""
    found = alarms([epoch_record(metrics={"rollout/truncated": 0.5})], GuardsConfig())
    with Journal.create(tmp_path, "run-1", "config: 1\n", created_at=NOON) as journal:
        run = RunContext("run-1", RunLog(journal))
        for epoch, before in enumerate([(), {"truncation"}, {"truncation"}]):
            warn_of(run, epoch, found, before=before)
    assert [text.partition(":")[0] for text in caplog.messages] == ["Epoch 1"]
    assert run.explained == {"truncation"}
