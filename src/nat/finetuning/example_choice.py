"""Choose the examples of an epoch before they are played, by what is known of their rewards. Pure but for the memory.

A group teaches by the differences between its rewards, so an example is worth playing as far as its rewards are likely
to differ: its worth is the estimated variance of the reward in its group. Unseen examples count as the best one seen
(optimism), and observations fade, so that solved and hopeless examples are seen again now and then. The choice is
random, in proportion to the worth, so that no example is left out for good.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from random import Random
from statistics import pvariance

from nat.capture.context import stable_seed

PRIOR_ROLLOUTS = 1.0
"""How many rollouts the optimistic guess about an example is worth."""
REMEMBERED = 0.9
"""Share of an observation's weight that is left after an epoch."""


@dataclass(frozen=True)
class Spread:
    """What is known of an example's rewards."""

    rollouts: float
    """Number of rollouts, faded by their age."""
    variance: float
    """Mean variance of the reward in a group, weighted by rollouts."""
    epoch: int
    """The epoch of the last observation."""

    def rollouts_at(self, epoch: int) -> float:
        """The number of rollouts as it counts in a later epoch."""
        return float(self.rollouts * REMEMBERED ** (epoch - self.epoch))


def in_turn(ids: Sequence[str], count: int, *, begin: int, seed: int) -> list[str]:
    """Give `count` different examples of shuffled passes over the dataset, from place `begin` on."""
    chosen: dict[str, None] = {}
    for number in count_from(begin // max(1, len(ids))):
        order = Random(stable_seed(seed, "examples", number)).sample(list(ids), len(ids))
        chosen |= dict.fromkeys(order[begin - number * len(ids) :] if not chosen else order)
        if len(chosen) >= min(count, len(ids)):
            break
    return list(chosen)[:count]


def by_spread(
    ids: Sequence[str], count: int, known: Mapping[str, Spread], *, seed: int, epoch: int, without: Collection[str]
) -> list[str]:
    """Draw `count` examples without replacement, in proportion to the variance that is expected of their rewards.

    Efraimidis and Spirakis (2006): the largest of u^(1/w), with u uniform in [0, 1], are such a draw.
    """
    worth = expected_variance(ids, known, epoch)
    random = Random(stable_seed(seed, "examples", epoch))
    keys = {example: random.random() ** (1 / worth[example]) for example in ids}
    left = [example for example in ids if example not in without]
    return sorted(left, key=keys.__getitem__, reverse=True)[:count]


def expected_variance(ids: Sequence[str], known: Mapping[str, Spread], epoch: int) -> dict[str, float]:
    """The variance that is expected of each example's rewards, as a share of the largest one seen; above 0."""
    best = max((spread.variance for spread in known.values()), default=0.0) or 1.0
    return {example: _expected(known.get(example), best, epoch) / best for example in ids}


def observed(known: Mapping[str, Spread], rewards: Mapping[str, Sequence[float]], epoch: int) -> dict[str, Spread]:
    """What is known after an epoch with these rewards of each example."""
    return {**known, **{example: _joined(known.get(example), values, epoch) for example, values in rewards.items()}}


def _expected(spread: Spread | None, best: float, epoch: int) -> float:
    if spread is None:
        return best
    rollouts = spread.rollouts_at(epoch)
    return (PRIOR_ROLLOUTS * best + rollouts * spread.variance) / (PRIOR_ROLLOUTS + rollouts)


def _joined(spread: Spread | None, rewards: Sequence[float], epoch: int) -> Spread:
    before = 0.0 if spread is None else spread.rollouts_at(epoch)
    weighted = 0.0 if spread is None else before * spread.variance
    rollouts = before + len(rewards)
    return Spread(rollouts, (weighted + len(rewards) * pvariance(rewards)) / rollouts, epoch)
