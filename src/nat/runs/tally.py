"""Counts over the rollouts of an epoch: what was left out and why, and which names were seen."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nat.data_models.rollout_failure import FailureCount, counted
from nat.runs.left_out import LeftOutCause
from nat.runs.records import RolloutRecord


@dataclass(frozen=True)
class RolloutTally:
    """Evidence that the guards judge by and that error messages quote."""

    num_rollouts: int = 0
    causes: Counter[LeftOutCause] = field(default_factory=Counter)
    """Rollouts that were left out, by cause."""
    failures: Sequence[FailureCount] = ()
    """Of these, what was nobody's choice, with the commonest error of each cause."""
    functions: Counter[str] = field(default_factory=Counter)
    """LLM calls by the function that made them."""
    models: Counter[str] = field(default_factory=Counter)
    """LLM calls by model."""
    untrainable: Counter[tuple[str, str]] = field(default_factory=Counter)
    """LLM calls that were left out for how they were sampled, by function and by the fields that do it."""

    @property
    def num_usable(self) -> int:
        """Rollouts that could be trained on, whether or not the trainer chose them."""
        return self.num_rollouts - sum(count for cause, count in self.causes.items() if not cause.by_choice)

    @property
    def num_failed(self) -> int:
        return sum(count for cause, count in self.causes.items() if cause.failure)


def tally(records: Iterable[RolloutRecord]) -> RolloutTally:
    """Count in one pass; the records may come from a generator and need not fit into memory."""
    counts = RolloutTally()
    num_rollouts = 0
    errors: list[tuple[str, str | None]] = []
    for record in records:
        num_rollouts += 1
        counts.functions.update(record.functions)
        counts.models.update(record.models)
        counts.untrainable.update(
            {(name, how): n for name, own in record.untrainable_calls.items() for how, n in own.items()}
        )
        if record.left_out is not None:
            counts.causes[record.left_out] += 1
            if not record.left_out.by_choice:
                errors.append((record.left_out, record.error))
    return RolloutTally(
        num_rollouts, counts.causes, counted(errors), counts.functions, counts.models, counts.untrainable
    )
