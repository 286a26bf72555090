"""Turn the rewards of a batch, or the returns of its answers, into advantages.

Standard deviations are those of a sample (n - 1), as in TRL. An advantage belongs to a rollout: all of its rows share
it, however many rows it was cut into.

Where each answer of a rollout has a return of its own, it has an advantage of its own. It is compared with rollouts,
each of which weighs the same, however many answers it gave: a mean is the mean of the rollouts' means, a variance the
mean square of a rollout's deviations, summed and divided by the rollouts less one. If the returns within each rollout
are equal, this is the same as comparing rewards.

Shapes: C returns (answers), R rollouts, of the batch or of one group where a function says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nat.wire.rewards import alike, equal, rounding
from nat.wire.training import Compares


@dataclass(frozen=True)
class Returns:
    """The returns of the answers of some rollouts."""

    values_C: Tensor
    """float64, rollout by rollout."""
    counts: tuple[int, ...]
    """How many of the values belong to each of the R rollouts; at least one each."""

    @staticmethod
    def of(rollouts: Sequence[Sequence[float]]) -> "Returns":
        values = [value for own in rollouts for value in own]
        return Returns(torch.tensor(values, dtype=torch.float64), tuple(map(len, rollouts)))

    @staticmethod
    def joined(groups: Sequence["Returns"]) -> "Returns":
        counts = tuple(count for group in groups for count in group.counts)
        return Returns(torch.cat([group.values_C for group in groups]), counts)

    @cached_property
    def mean(self) -> Tensor:
        return self.means_R.mean()

    @cached_property
    def std(self) -> Tensor:
        """Standard deviation around the mean, each rollout weighing the same; there are at least two rollouts."""
        squares = Returns((self.values_C - self.mean).square(), self.counts)
        return (squares.means_R.sum() / (len(self.counts) - 1)).sqrt()

    @cached_property
    def means_R(self) -> Tensor:
        return torch.stack([own.mean() for own in self._by_rollout])

    def minus(self, baseline: Tensor) -> Tensor:
        """The returns less a baseline, exactly 0 where the difference is a rounding error.

        AdamW would make a full step of such an error, since it forgets how small a gradient is.
        """
        allowed = rounding(self.values_C.tolist()) / 2  # values that are not all equal are further from their mean
        difference_C = self.values_C - baseline
        return difference_C.where(difference_C.abs() > allowed, 0.0)

    def spread(self, values_R: Tensor) -> Tensor:
        """Repeat the value of each rollout for each of its answers."""
        return values_R.repeat_interleave(torch.tensor(self.counts))

    @property
    def alike(self) -> bool:
        """True if all rollouts have the same returns."""
        return alike([own.tolist() for own in self._by_rollout])

    @property
    def _by_rollout(self) -> Sequence[Tensor]:
        return torch.split(self.values_C, list(self.counts))


@dataclass(frozen=True)
class Advantage:
    """How returns become advantages."""

    compare: Callable[[Returns], Tensor] | None
    """One advantage for each return, of at least two rollouts that differ; None if rollouts carry their advantages."""
    among: Compares = "group"
    """Compare the rollouts of each `group`, or of the whole `batch`; with `nothing`, single rollouts carry a signal,
    and groups of equal rewards."""


@dataclass(frozen=True)
class BatchAdvantages:
    """One advantage for each return, and which groups carry a signal."""

    groups: list[Tensor]
    """Per group, the advantages of its returns (float64); all zero where the group carries no signal."""
    has_signal: list[bool]
    """Per group; a group without is left out of the loss and of its denominator."""


def batch_advantages(
    groups: Sequence[Returns], advantage: Advantage, *, normalize: bool, given: Sequence[Sequence[float]] = ()
) -> BatchAdvantages:
    """Give each return its advantage; `given` holds one for each return if rollouts carry their advantages.

    Groups of equal returns carry no signal and are left out, unless rollouts are not compared. If the whole batch is
    compared, it is left out only as a whole; if advantages are given, only groups whose advantages are all zero are
    left out. `normalize` divides by the standard deviation of all advantages that are left, if they differ.
    """
    if advantage.compare is None:
        advantages = [
            Returns(torch.tensor(list(own), dtype=torch.float64), group.counts)
            for group, own in zip(groups, given, strict=True)
        ]
        has_signal = [bool(group.values_C.any()) for group in advantages]
    elif advantage.among == "batch":
        batch = Returns.joined(groups)
        has_signal = [not batch.alike] * len(groups)
        compared_C = batch.values_C if batch.alike else advantage.compare(batch)
        parts = torch.split(compared_C, [len(group.values_C) for group in groups])
        advantages = [Returns(part_C, group.counts) for part_C, group in zip(parts, groups, strict=True)]
    else:
        has_signal = [advantage.among == "nothing" or not group.alike for group in groups]
        advantages = [
            Returns(advantage.compare(group), group.counts) if keep else group
            for group, keep in zip(groups, has_signal, strict=True)
        ]
    kept = [group for group, keep in zip(advantages, has_signal, strict=True) if keep]
    scale = 1.0
    if normalize and kept:
        left = Returns.joined(kept)
        if len(left.counts) > 1 and not equal(left.values_C.tolist()):
            scale = float(left.std)
    return BatchAdvantages(
        groups=[
            group.values_C / scale if keep else torch.zeros_like(group.values_C)
            for group, keep in zip(advantages, has_signal, strict=True)
        ],
        has_signal=has_signal,
    )
