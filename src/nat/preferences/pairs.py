"""Choose which generations of an example are compared, by their rewards."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import isfinite
from typing import Literal

from nat.wire.rewards import equal

Pairing = Literal["best_worst", "all"]

_ROUNDING = 1e-9
"""By which a difference of two rewards may fall short of the margin: 0.3 - 0.2 is less than 0.1."""


def pairs_of(
    rewards: Sequence[float], margin: float = 0.0, most: int | None = None, how: Pairing = "all"
) -> list[tuple[int, int]]:
    """Index pairs (better, worse) whose rewards differ by more than rounding, and by `margin` at least.

    The widest difference comes first.
    Among equal differences, generations that are in no pair yet come first, so that the first `most` pairs use many of
    them. `best_worst` gives one pair, of the first generations with the highest and the lowest reward. A reward that is
    not finite is in no pair.
    """
    scored = [index for index, reward in enumerate(rewards) if isfinite(reward)]
    if how == "best_worst" and scored:
        scored = [max(scored, key=lambda index: rewards[index]), min(scored, key=lambda index: rewards[index])]
    ordered = ((a, b) if rewards[a] > rewards[b] else (b, a) for a, b in combinations(scored, 2))
    pairs = [
        (a, b)
        for a, b in ordered
        if rewards[a] - rewards[b] >= margin - _ROUNDING and not equal([rewards[a], rewards[b]])
    ]
    ranks, counts = _ranks(rewards), Counter(rewards)

    def order(pair: tuple[int, int]) -> tuple[float, int]:
        better, worse = pair
        fewer = min(counts[rewards[better]], counts[rewards[worse]])
        return rewards[worse] - rewards[better], (ranks[worse] - ranks[better]) % fewer

    return sorted(pairs, key=order)[:most]


def _ranks(rewards: Sequence[float]) -> list[int]:
    """Each index's place among those of the same reward."""
    seen: Counter[float] = Counter()
    ranks = []
    for reward in rewards:
        ranks.append(seen[reward])
        seen[reward] += 1
    return ranks
