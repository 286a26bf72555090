"""Check that scores can be averaged and trained on, and average them, with 95 % intervals. Pure."""

import math
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import Any, SupportsFloat, TypeGuard

from nat.secrets import redact
from nat.wire.rewards import LARGEST

_SHOWN_CHARS = 60
_Z_95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


def plain_score(value: object) -> Any:
    """A number of any library as Python's own: of numpy, `Decimal`, a tensor without dimensions; others unchanged."""
    if type(value) in (bool, int, float) or isinstance(value, str) or getattr(value, "shape", ()) != ():
        return value
    try:
        return float(value) if isinstance(value, SupportsFloat) else value
    except (TypeError, ValueError):
        return value


def is_score(value: object) -> bool:
    """True for a finite number of at most `LARGEST` in size, and for true and false."""
    number = plain_score(value)
    return isinstance(number, int | float) and bool(abs(number) <= LARGEST)  # false for NaN


def score_problem(value: object, name: str = "the score") -> str | None:
    """The reason why a value cannot be a score; None if it can."""
    number = plain_score(value)
    if is_score(number):
        return None
    if value is None:
        return f"{name} is None: the evaluator gave none for this answer"
    if not isinstance(number, int | float):
        advice = "; give float(…) of a text that is one" if isinstance(value, str) else ""
        return f"{name} is {_shown(value)} ({type(value).__name__}), not a number{advice}"
    if isinstance(number, float) and not math.isfinite(number):
        return f"{name} is {number}, not a finite number"
    return f"{name} is larger than {LARGEST:g}, the largest that can be averaged"


def is_finite(value: object) -> TypeGuard[float]:
    """Like `math.isfinite`, for any value; False for an integer that is too large for a float."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value, limited to their range, which rounding could leave."""
    return min(max(fmean(values), min(values)), max(values))


def mean_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """Lower end, mean and upper end of the interval, by the normal approximation; at least one score.

    All three lie within the scores' own range. The interval is for one point of a curve; the verdict on a run compares
    the same examples before and after (`nat.finetuning.verdict`).
    """
    middle = mean(scores)
    if len(scores) == 1:
        return middle, middle, middle
    reach = _Z_95 * math.hypot(*(score - middle for score in scores)) / math.sqrt(len(scores) * (len(scores) - 1))
    return max(min(scores), middle - reach), middle, min(max(scores), middle + reach)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """The interval of a share that was seen `count` times in `total` (Wilson, 1927)."""
    share, z2 = count / total, _Z_95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z_95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _shown(value: object) -> str:
    text = redact(repr(value))
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
