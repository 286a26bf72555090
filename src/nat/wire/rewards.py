"""Compare rewards, with one rule for the harness and the backend.

A rollout is compared by its reward, or by one number for each of its answers.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

EQUAL_UP_TO = 1e-9
"""Numbers that differ by no more than this share of their size are equal: 0.3 and 0.1 + 0.2 differ by rounding."""

LARGEST = 1e15
"""Above this size, floats cannot distinguish rewards that differ by a tenth, and the square of a float32 overflows."""

Reward = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
"""A reward on the wire; NaN and infinity are out of range, too."""


def rounding(values: Iterable[float]) -> float:
    """The largest difference between these numbers that counts as zero."""
    return EQUAL_UP_TO * max(map(abs, values), default=0.0)


def equal(values: Sequence[float]) -> bool:
    """True if no two of them differ by more than rounding."""
    return not values or max(values) - min(values) <= rounding(values)


def alike(rollouts: Sequence[Sequence[float]]) -> bool:
    """True if all numbers are equal, or if every rollout has the same numbers."""
    values = [value for own in rollouts for value in own]
    if len(rollouts) <= 1 or equal(values):
        return True
    first, *others = rollouts
    allowed = rounding(values)
    return all(
        len(own) == len(first) and all(abs(a - b) <= allowed for a, b in zip(own, first, strict=True)) for own in others
    )


def spread(rollouts: Sequence[Sequence[float]]) -> float:
    """The largest difference between their numbers, exactly 0 where the rollouts are alike."""
    values = [value for own in rollouts for value in own]
    return 0.0 if alike(rollouts) else max(values) - min(values)
