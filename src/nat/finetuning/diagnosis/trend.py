"""How the training reward changed, with the standard error by which epochs are compared everywhere. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean
from typing import TypeVar

from nat.finetuning.rollout_statistics import STANDARD_ERRORS
from nat.runs.records import EpochRecord
from nat.runs.scores_beside import BESIDE, BESIDE_STD

T = TypeVar("T")

LEARNED = 0.2
"""Share of the distance from the first mean reward to the highest reward that a run must gain to have learned. In
examples/tic_tac_toe it is passed after 6 of 60 epochs; the run of .39 to .46 with the defaults of release 0.5 is at
.11."""


@dataclass(frozen=True)
class Trend:
    """The mean training reward in some epochs and in some later ones; of a run, in its first and last third."""

    before: float
    after: float
    error: float
    """Standard error of the difference, from the variance between rollouts."""
    highest: float
    """The highest reward of a rollout."""

    @property
    def gain(self) -> float:
        return self.after - self.before

    @property
    def rose(self) -> bool:
        """True if the gain is more than chance."""
        return self.gain > STANDARD_ERRORS * self.error

    @property
    def fell(self) -> bool:
        """True if the loss is more than chance."""
        return -self.gain > STANDARD_ERRORS * self.error

    @property
    def learned(self) -> bool:
        """True if it is also a fair part of what was possible."""
        return self.rose and self.gain >= LEARNED * (self.highest - self.before)

    def __str__(self) -> str:
        return f"{self.before:.3f} in the first third of the epochs, {self.after:.3f} ± {self.error:.3f} in the last"


def trend_of(epochs: Sequence[EpochRecord]) -> Trend | None:
    """The mean reward in the first and the last third; None with fewer than two epochs."""
    if len(epochs) < 2:
        return None
    return replace(change(first_third(epochs), last_third(epochs)), highest=max(e.max_reward for e in epochs))


def change(first: Sequence[EpochRecord], last: Sequence[EpochRecord]) -> Trend:
    """The mean reward in some epochs and in some later ones, at least one each.

    If all of them play the same examples several times, their difficulty cancels, and only the variance inside examples
    is chance; else, the variance between examples is, too.
    """
    seen = {example for e in first for example in e.examples}
    same = bool(seen) and all(e.examples.keys() == seen and e.num_trajectories > len(seen) for e in (*first, *last))
    return Trend(
        before=_mean_reward(first),
        after=_mean_reward(last),
        error=sqrt(sum(_mean_variance(part, same_examples=same) for part in (first, last))),
        highest=max(e.max_reward for e in (*first, *last)),
    )


def change_beside(name: str, first: Sequence[EpochRecord], last: Sequence[EpochRecord]) -> Trend | None:
    """The same of the mean score by an evaluator that is not the reward; None if some epochs lack it.

    Its variance inside examples is not known, so that between examples counts as chance, too.
    """
    mean, spread = f"{BESIDE}{name}", f"{BESIDE_STD}{name}"
    if not all(mean in epoch.metrics for epoch in (*first, *last)):
        return None
    counts = [_total(e.num_trajectories for e in part) for part in (first, last)]
    before, after = (
        sum(e.metrics[mean] * e.num_trajectories for e in part) / count
        for part, count in zip((first, last), counts, strict=True)
    )
    variances = [
        fmean(e.metrics.get(spread, 0.0) ** 2 for e in part) / count
        for part, count in zip((first, last), counts, strict=True)
    ]
    return Trend(before, after, sqrt(sum(variances)), highest=max(e.metrics[mean] for e in (*first, *last)))


def first_third(epochs: Sequence[T]) -> Sequence[T]:
    """At least one epoch, if there is one."""
    return epochs[: max(1, len(epochs) // 3)]


def last_third(epochs: Sequence[T]) -> Sequence[T]:
    """As many."""
    return epochs[-max(1, len(epochs) // 3) :]


def means(values: Sequence[float], over: int) -> list[float]:
    """The mean of each value and of those before it, `over` in all, as far as there are so many."""
    return [fmean(values[max(0, end - over) : end]) for end in range(1, len(values) + 1)]


def _mean_reward(epochs: Sequence[EpochRecord]) -> float:
    return sum(e.avg_reward * e.num_trajectories for e in epochs) / _total(e.num_trajectories for e in epochs)


def _mean_variance(epochs: Sequence[EpochRecord], *, same_examples: bool) -> float:
    """Variance of the mean reward over these epochs."""
    inside = fmean(e.metrics.get("reward/example_variance", 0.0) for e in epochs)
    error = inside / _total(e.num_trajectories for e in epochs)
    if same_examples:
        return error
    whole = fmean(e.metrics.get("reward/std", 0.0) ** 2 for e in epochs)
    return error + max(0.0, whole - inside) / _total(e.num_groups for e in epochs)


def _total(counts: Iterable[int]) -> int:
    return sum(counts) or 1
