"""ART's rules for what a trajectory's reward means to the loss: its advantage, and the weight of its tokens.

Facts: a group's rewards are centred, and divided by their population standard deviation (rewards scaled); every
trajectory weighs the same, however long it is; weights are scaled to a mean of 1 over all trained tokens, and
advantages so that the mean of |advantage| · weight is 1. So an update forgets the scale of the rewards either way.

Differences that are rounding count as none: 0.1 + 0.1 + 0.1 has a mean that is not 0.1, and the last rescaling would
make a full-sized signal of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from nat.wire.rewards import equal, rounding

SCALE_EPSILON = 1e-6
"""Added to the standard deviation of a group."""


@dataclass(frozen=True)
class Share:
    """What one trajectory is in the loss."""

    advantage: float
    weight: float


def group_advantages(rewards: Sequence[float], *, scale: bool) -> list[float | None]:
    """Compare the trajectories of a group; None for one that is neither better nor worse than the mean."""
    if equal(rewards):
        return [None] * len(rewards)
    mean = fsum(rewards) / len(rewards)
    allowed = rounding(rewards) / 2  # rewards that are not equal are further than this from their mean, at least one
    unit = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)) + SCALE_EPSILON if scale else 1.0
    return [None if abs(reward - mean) <= allowed else (reward - mean) / unit for reward in rewards]


def balanced(advantages: Sequence[float | None], balance: float) -> list[float | None]:
    """Shrink negative advantages by a balance above 0, positive ones by one below it; ±1 leaves one side only."""
    return [None if a is None or (factor := _factor(a, balance)) == 0 else a * factor for a in advantages]


def shares(advantages: Sequence[float], tokens: Sequence[int]) -> list[Share]:
    """Scale the advantages and weights of a batch of trajectories, each with its number of trained tokens."""
    if not advantages:
        return []
    # A trajectory's tokens weigh 1 together, so means over weighted tokens are means over trajectories.
    size = fsum(map(abs, advantages)) / len(advantages)
    mean_tokens = sum(tokens) / len(tokens)
    return [Share(a / size, mean_tokens / count) for a, count in zip(advantages, tokens, strict=True)]


def _factor(advantage: float, balance: float) -> float:
    return 1 - max(balance, 0.0) if advantage < 0 else 1 + min(balance, 0.0)
