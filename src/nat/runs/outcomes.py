"""The rollouts of an epoch by their rewards: a histogram, and the groups of an example. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from nat.data_models.score import is_score
from nat.runs.rollouts import Outcome

_SEPARATE = 12
"""With at most so many different rewards, each has a bin of its own."""
_BINS = 20


@dataclass(frozen=True)
class Bin:
    """How many rewards are from `low` up to `high`, which belongs to the next bin, if there is one."""

    low: float
    high: float
    count: int

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def label(self) -> str:
        """The range in words."""
        return f"{self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"


@dataclass(frozen=True)
class GroupOutcomes:
    """The generations of one example in an epoch."""

    example_id: str
    outcomes: Sequence[Outcome]

    @property
    def mean(self) -> float | None:
        """The mean of those that have a reward."""
        rewards = rewards_of(self.outcomes)
        return sum(rewards) / len(rewards) if rewards else None


def rewards_of(outcomes: Sequence[Outcome]) -> list[float]:
    """The finite rewards."""
    return [each.reward for each in outcomes if each.reward is not None and is_score(each.reward)]


def histogram(outcomes: Sequence[Outcome]) -> list[Bin]:
    """Bins of equal width over the rewards, or one for each reward if they are few; none without a reward."""
    rewards = rewards_of(outcomes)
    values = sorted(set(rewards))
    if len(values) <= _SEPARATE:
        found = Counter(rewards)
        return [Bin(value, value, found[value]) for value in values]
    low, width = values[0], (values[-1] - values[0]) / _BINS
    edges = [*(low + place * width for place in range(_BINS)), values[-1]]
    counts = Counter(min(_BINS, bisect_right(edges, reward)) - 1 for reward in rewards)
    return [Bin(edges[n], edges[n + 1], counts[n]) for n in range(_BINS)]


def groups_of(outcomes: Sequence[Outcome]) -> list[GroupOutcomes]:
    """The outcomes by example, in their order."""
    return [GroupOutcomes(name, list(own)) for name, own in groupby(outcomes, key=attrgetter("example_id"))]
