"""Whether a mean reward changed: the difference between some epochs and later ones, with its standard error. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

from nat.runs.records import EpochRecord

T = TypeVar("T")

STANDARD_ERRORS = 2.0
"""A difference of more standard errors is called one; chance makes one of this size in 5 of 100 cases."""


@dataclass(frozen=True)
class Change:
    """A mean before, a mean after, and the standard error of their difference."""

    before: float
    after: float
    error: float

    @property
    def gain(self) -> float:
        return self.after - self.before

    @property
    def rose(self) -> bool:
        """True if the gain is more than chance."""
        return self.gain > STANDARD_ERRORS * self.error

    def collapsed(self, worst: float, share: float) -> bool:
        """True if the loss is more than chance, and less than `share` is left of the height above the worst score."""
        fell = -self.gain > STANDARD_ERRORS * self.error
        return fell and self.after - worst < share * (self.before - worst)

    def __str__(self) -> str:
        return f"{self.before:.3f} in the first third of the epochs, {self.after:.3f} ± {self.error:.3f} in the last"


def change(first: Sequence[EpochRecord], last: Sequence[EpochRecord]) -> Change:
    """The mean reward in some epochs and in some later ones, at least one each.

    If all of them play the same examples several times, their difficulty cancels, and only the variance inside examples
    is chance; else, the variance between examples is, too. Where an epoch has no variance, it is the largest one that
    rewards between its lowest and its highest can have (Bhatia and Davis, 2000), and a group counts as one sample.
    """
    seen = {example for epoch in first for example in epoch.examples}
    same = bool(seen) and all(e.examples.keys() == seen and e.num_trajectories > len(seen) for e in (*first, *last))
    variances = (_variance_of_mean(part, same_examples=same) for part in (first, last))
    return Change(_mean(first), _mean(last), sqrt(sum(variances)))


def first_third(values: Sequence[T]) -> Sequence[T]:
    """At least one, if there is one."""
    return values[: max(1, len(values) // 3)]


def last_third(values: Sequence[T]) -> Sequence[T]:
    """As many."""
    return values[-max(1, len(values) // 3) :]


def _mean(epochs: Sequence[EpochRecord]) -> float:
    return sum(e.avg_reward * e.num_trajectories for e in epochs) / (sum(e.num_trajectories for e in epochs) or 1)


def _variance_of_mean(epochs: Sequence[EpochRecord], *, same_examples: bool) -> float:
    total = sum(e.num_trajectories for e in epochs) or 1
    return sum(_variance(e, same_examples=same_examples) * e.num_trajectories**2 for e in epochs) / total**2


def _variance(epoch: EpochRecord, *, same_examples: bool) -> float:
    """Of the epoch's mean."""
    spread, inside = (epoch.metrics.get(name) for name in ("reward/std", "reward/example_variance"))
    groups, rollouts = max(1, epoch.num_groups), max(1, epoch.num_trajectories)
    if spread is None or inside is None:
        most = (epoch.avg_reward - epoch.min_reward) * (epoch.max_reward - epoch.avg_reward)
        return max(0.0, most) / groups
    between = 0.0 if same_examples else max(0.0, spread**2 - inside)
    return inside / rollouts + between / groups
