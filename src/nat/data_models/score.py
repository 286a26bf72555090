"""Check that scores can be averaged and trained on, and average them. Pure."""

import math
import sys
from collections.abc import Sequence
from numbers import Real
from statistics import fmean
from typing import Any, TypeGuard

from nat.secrets import redact
from nat.wire.rewards import LARGEST

_SHOWN_CHARS = 60


def is_score(value: object) -> bool:
    """True for a finite number of at most `LARGEST` in size, and for true and false."""
    size: Any = abs(value) if isinstance(value, Real) else math.inf
    return bool(size <= LARGEST)  # false for NaN


def score_problem(value: object, name: str = "the score") -> str | None:
    """The reason why a value cannot be a score; None if it can."""
    if is_score(value):
        return None
    if value is None:
        return f"{name} is None: the evaluator gave none for this answer"
    if not isinstance(value, Real):
        return f"{name} is {_shown(value)} ({type(value).__name__}), not a number"
    try:
        number = float(value)
    except OverflowError:  # Python prints no whole number of more than 4300 digits
        return f"{name} is a whole number of more than 308 digits; only scores up to {LARGEST:g} can be averaged"
    if math.isfinite(number):
        return f"{name} is {number:g}; only scores up to {LARGEST:g} can be averaged"
    return f"{name} is {number}, not a finite number"


def is_finite(value: object) -> TypeGuard[float]:
    """Like `math.isfinite`, for any value; False for an integer that is too large for a float."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value, limited to their range, which rounding could leave."""
    return min(max(fmean(values), min(values)), max(values))


def _shown(value: object) -> str:
    text = redact(repr(value))
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
