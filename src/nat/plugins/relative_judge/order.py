"""What the order of the attempts does to their scores, and how scores of several calls are joined. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from nat.data_models.evaluator import ComparisonFacts
from nat.plugins.relative_judge.prompt import AttemptScore


def order_facts(forward: Sequence[float], backward: Sequence[float]) -> ComparisonFacts:
    """Compare the scores of attempts shown in their order with those shown in the reversed order.

    Both lists have the scores in the same order of attempts.
    """
    pairs = list(combinations(range(len(forward)), 2))
    for_first = sum(_sign(forward[a] - forward[b]) - _sign(backward[a] - backward[b]) for a, b in pairs)
    flipped = sum(_sign(forward[a] - forward[b]) * _sign(backward[a] - backward[b]) < 0 for a, b in pairs)
    return ComparisonFacts(pairs=len(pairs), for_first=for_first, flipped=flipped)


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def taken(order: Iterable[int], lengths: Sequence[int], *, count: int, room: int) -> list[int]:
    """The first of `order` that fit into one call: at least one, at most `count`, with `room` characters in all."""
    found: list[int] = []
    for number in order:
        room -= lengths[number]
        if found and (room < 0 or len(found) == count):
            break
        found.append(number)
    return found


def middle(scores: Mapping[int, AttemptScore]) -> int:
    """The attempt in the middle of the ranking."""
    return sorted(scores, key=lambda number: scores[number].score)[len(scores) // 2]


def on_scale(given: AttemptScore, *, anchor: AttemptScore, known: AttemptScore) -> AttemptScore:
    """A score of a call in which the anchor got `anchor`, on the scale of the call in which it got `known`.

    0, the anchor and 1 are mapped to 0, `known` and 1, and linearly between them, so that the order stays.
    """
    score, low, high = given.score, anchor.score, known.score
    if score > low:
        return AttemptScore(score=min(1.0, high + (1 - high) * (score - low) / (1 - low)), why=given.why)
    return AttemptScore(score=high * (score / low) if low else high, why=given.why)
