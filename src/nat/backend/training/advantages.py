"""Turn the rewards of a batch, or the returns of its answers, into advantages.

Formulas: GRPO (arXiv 2402.03300), Dr.GRPO (2503.20783), RLOO (2402.14740), REINFORCE++ (2501.03262). Standard
deviations are those of a sample (n - 1), as in TRL. An advantage belongs to a rollout: all of its rows share
it, however many rows it was cut into.

Where each answer of a rollout has a return of its own, it has an advantage of its own. What it is compared with is
made of rollouts, each of which weighs the same, however many answers it gave: a mean is the mean of the rollouts'
means, a variance the mean square of a rollout's deviations, summed and divided by the rollouts less one. With equal
returns within each rollout all of this is what it is for rewards.

Shapes: C returns (answers), R rollouts, of the batch or of one group where a function says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from nat.wire.rewards import alike, equal, rounding
from nat.wire.training import Advantage

GRPO_EPSILON = 1e-4
"""Added to the standard deviation of a group, as in TRL."""


@dataclass(frozen=True)
class Returns:
    """What the answers of some rollouts are compared by."""

    values_C: Tensor
    """float64, rollout by rollout."""
    counts: tuple[int, ...]
    """Of the R rollouts: how many of the values are its own, at least one."""

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
        """Of the values around the mean, each rollout weighing the same; there are at least two rollouts."""
        squares = self.replaced((self.values_C - self.mean).square())
        return (squares.means_R.sum() / (len(self.counts) - 1)).sqrt()

    @cached_property
    def means_R(self) -> Tensor:
        return torch.stack([own.mean() for own in self._by_rollout])

    @cached_property
    def rounding(self) -> float:
        """How far a value that is equal to the mean may be from it; values that are not all equal are further off."""
        return rounding(self.values_C.tolist()) / 2

    @property
    def _by_rollout(self) -> Sequence[Tensor]:
        return torch.split(self.values_C, list(self.counts))

    @property
    def alike(self) -> bool:
        """True if there is nothing to tell rollouts apart by."""
        return alike([own.tolist() for own in self._by_rollout])

    def spread(self, values_R: Tensor) -> Tensor:
        """The value of each rollout, for each of its answers."""
        return values_R.repeat_interleave(torch.tensor(self.counts))

    def replaced(self, values_C: Tensor) -> "Returns":
        return Returns(values_C, self.counts)


@dataclass(frozen=True)
class BatchAdvantages:
    """One advantage for each return, and which groups carry a signal."""

    groups: list[Tensor]
    """Per group, the advantages of its returns (float64); all zero where the group carries no signal."""
    has_signal: list[bool]
    """Per group; a group without is left out of the loss and of its denominator."""


def batch_advantages(
    groups: Sequence[Returns],
    method: Advantage,
    *,
    normalize: bool,
    given: Sequence[Sequence[float]] = (),
) -> BatchAdvantages:
    """Give each return its advantage; for the method `given`, `given` holds one advantage for each.

    Groups of equal rewards say nothing about better or worse and are left out, except with `reinforce_pp`,
    which compares with the whole batch, and `given`, where only a group whose advantages are all zero is left out.
    `normalize` divides by the standard deviation of the advantages of all rollouts that are left in, if they differ.
    """
    if method == "reinforce_pp":
        whole = Returns.joined(groups)
        has_signal = [not whole.alike] * len(groups)
        advantages = list(groups) if whole.alike else [_whitened(group, whole) for group in groups]
    elif method == "given":
        advantages = [
            group.replaced(torch.tensor(list(own), dtype=torch.float64))
            for group, own in zip(groups, given, strict=True)
        ]
        has_signal = [bool(group.values_C.any()) for group in advantages]
    else:
        has_signal = [not group.alike for group in groups]
        advantages = [
            group.replaced(group_advantages(group, method)) if keep else group
            for group, keep in zip(groups, has_signal, strict=True)
        ]
    kept = [group for group, keep in zip(advantages, has_signal, strict=True) if keep]
    scale = _scale(Returns.joined(kept)) if normalize and kept else 1.0
    return BatchAdvantages(
        groups=[
            group.values_C / scale if keep else torch.zeros_like(group.values_C)
            for group, keep in zip(advantages, has_signal, strict=True)
        ],
        has_signal=has_signal,
    )


def group_advantages(returns: Returns, method: Literal["grpo", "dr_grpo", "rloo"]) -> Tensor:
    """Compare the answers of one group, which has at least two rollouts.

    grpo: (r - mean) / (std + ε). dr_grpo: r - mean. rloo: r - mean of the other rollouts, for rewards
    R/(R-1) · (r - mean).
    """
    if method == "grpo":
        return _difference(returns.values_C, returns.mean, returns.rounding) / (returns.std + GRPO_EPSILON)
    if method == "rloo":
        means_R = returns.means_R
        others_R = (means_R.sum() - means_R) / (len(means_R) - 1)
        return _difference(returns.values_C, returns.spread(others_R), returns.rounding)
    return _difference(returns.values_C, returns.mean, returns.rounding)


def _whitened(group: Returns, whole: Returns) -> Returns:
    return group.replaced(_difference(group.values_C, whole.mean, whole.rounding) / whole.std)


def _difference(values_C: Tensor, baseline: Tensor, rounding: float) -> Tensor:
    """The values less the baseline, exactly 0 where that is rounding, since AdamW forgets how small a gradient is."""
    difference_C = values_C - baseline
    return difference_C.where(difference_C.abs() > rounding, 0.0)


def _scale(advantages: Returns) -> float:
    """Standard deviation, or 1 where there is none."""
    return 1.0 if len(advantages.counts) == 1 or equal(advantages.values_C.tolist()) else float(advantages.std)
