"""ART's advantages of trajectories, and the weights of their tokens. Pure.

A group's rewards are centered and, with `scale_rewards`, divided by their population standard deviation. Every
trajectory weighs the same, however long it is: the weights of all trained tokens have a mean of 1. Advantages are then
scaled so that the mean of |advantage| · weight is 1, so an update never depends on the scale of the rewards.

Differences within rounding count as none: the mean of 0.1, 0.1 and 0.1 is not exactly 0.1, and the last scaling would
turn that difference into a full signal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from nat.wire.rewards import equal, rounding

SCALE_EPSILON = 1e-6
"""Added to the standard deviation of a group."""


@dataclass(frozen=True)
class WeightedAdvantage:
    """A trajectory's advantage, and the weight of each of its tokens."""

    advantage: float
    weight: float


def group_advantages(rewards: Sequence[float], *, scale: bool) -> list[float | None]:
    """Compare the trajectories of a group; None for one that is neither better nor worse than the mean."""
    if equal(rewards):
        return [None] * len(rewards)
    mean = fsum(rewards) / len(rewards)
    allowed = rounding(rewards) / 2  # of rewards that differ, at least one is further than this from their mean
    unit = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)) + SCALE_EPSILON if scale else 1.0
    return [None if abs(reward - mean) <= allowed else (reward - mean) / unit for reward in rewards]


def balanced(advantages: Sequence[float | None], balance: float) -> list[float | None]:
    """Shrink negative advantages for a balance above 0, positive ones for one below 0; ±1 drops that side."""
    of_negative, of_positive = 1 - max(balance, 0.0), 1 + min(balance, 0.0)
    return [None if a is None else a * (of_negative if a < 0 else of_positive) or None for a in advantages]


def weighted(advantages: Sequence[float], tokens: Sequence[int]) -> list[WeightedAdvantage]:
    """Scale the advantages of a batch of trajectories and weigh their tokens, by each one's number of them."""
    if not advantages:
        return []
    # The tokens of a trajectory weigh 1 together, so means over weighted tokens are means over trajectories.
    size = fsum(map(abs, advantages)) / len(advantages)
    mean_tokens = sum(tokens) / len(tokens)
    return [WeightedAdvantage(a / size, mean_tokens / count) for a, count in zip(advantages, tokens, strict=True)]
