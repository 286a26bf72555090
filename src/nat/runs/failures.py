"""Failed rollouts of a run: counted by cause, and the first of each way to fail. Pure."""

from collections.abc import Sequence

from nat.data_models.rollout_failure import FailureCount, FirstFailure, total
from nat.runs.epochs import shown, when
from nat.runs.records import EpochRecord, Phase, RolloutRecord, ValidationRecord


def total_of(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord]) -> list[FailureCount]:
    """Of the whole run."""
    return total([*(epoch.failures for epoch in epochs), *(record.failures for record in validations)])


def num_rollouts(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord]) -> int:
    """Of the whole run, the failed ones included."""
    return sum(epoch.num_rollouts for epoch in epochs) + sum(record.num_rollouts for record in validations)


def first_failure(record: RolloutRecord, phase: Phase, epoch: int) -> FirstFailure | None:
    """What `failures.txt` shows of a rollout; None if it did not fail."""
    if record.left_out is None or record.left_out.by_choice:
        return None
    where = f"training, epoch {shown(epoch)}" if phase is Phase.TRAIN else f"held-out {when(epoch)}"
    rollout = f"{where}, example {record.example_id}, generation {record.generation}"
    return FirstFailure(rollout=rollout, cause=record.left_out, error=record.error, traceback=record.traceback)
