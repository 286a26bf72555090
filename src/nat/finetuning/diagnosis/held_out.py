"""What the held-out examples show of a run, and how they differ from those in training. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from operator import attrgetter
from statistics import fmean, variance

from nat.finetuning.verdict import Comparison, compare
from nat.runs.records import EpochRecord, ValidationRecord


@dataclass(frozen=True)
class HeldOut:
    """The held-out examples before training and at the last validation."""

    comparison: Comparison
    gap_errors: float | None = None
    """Difference of the scores before training, held-out less training, in standard errors."""
    unseen_words: float | None = None
    """Share of the words of a held-out example that no training example has."""
    usual_unseen: float | None = None
    """Share of the words of a training example that no other one has."""


def held_out_of(
    epochs: Sequence[EpochRecord],
    validations: Sequence[ValidationRecord],
    unseen_words: float | None,
    usual_unseen: float | None,
) -> HeldOut | None:
    """Compare the first validation with the last; None without two that share an example."""
    scored = sorted((v for v in validations if v.rewards), key=attrgetter("epoch"))
    if len(scored) < 2 or not _scored(scored[0]) & _scored(scored[-1]):  # noqa: PLR2004 - a comparison takes two
        return None
    return HeldOut(
        comparison=compare(scored[0].scores, scored[-1].scores),
        gap_errors=_gap(epochs, scored[0]) if epochs and scored[0].epoch == epochs[0].epoch else None,
        unseen_words=unseen_words,
        usual_unseen=usual_unseen,
    )


def _scored(validation: ValidationRecord) -> set[str]:
    return {example for example, score in validation.scores.items() if score is not None}


def _gap(epochs: Sequence[EpochRecord], before: ValidationRecord) -> float | None:
    """Held-out score before training less the reward of the first epoch, in standard errors over the examples."""
    played = list(epochs[0].examples.values()) if epochs and not epochs[0].relative else []
    if len(played) < 2:  # noqa: PLR2004 - a variance takes two
        return None
    spread = epochs[0].metrics.get("reward/std", 0.0)  # of single rollouts, as the held-out ones are
    error = sqrt(variance(played) / len(played) + spread**2 / len(before.rewards))
    return (fmean(before.rewards) - fmean(played)) / error if error > 0 else None
