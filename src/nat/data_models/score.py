"""Check that scores can be averaged and trained on, and average them, with 95 % intervals. Pure."""

import math
import sys
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import Any, SupportsFloat, TypeGuard

from nat.secrets import excerpt
from nat.wire.rewards import LARGEST

_SHOWN_CHARS = 60
CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


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
        return f"{name} is {excerpt(repr(value), _SHOWN_CHARS)} ({type(value).__name__}), not a number{advice}"
    if isinstance(number, float) and not math.isfinite(number):
        return f"{name} is {number}, not a finite number"
    return f"{name} is larger than {LARGEST:g}, the largest that can be averaged"


def is_finite(value: object) -> TypeGuard[float]:
    """Like `math.isfinite`, for any value; False for an integer that is too large for a float."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value, limited to their range, which rounding could leave."""
    return min(max(fmean(values), min(values)), max(values))


def interval(values: Sequence[float], low: float, high: float) -> tuple[float, float]:
    """The 95 % interval of the mean of at least one value; all of them lie between `low` and `high`.

    It is Student's t with two more values, the lowest and the highest possible: they allow for what few values did not
    show, as when all are equal. For wins and losses this is the interval of Bonett and Price (2012).
    """
    more = [*values, low, high]
    middle, spread = mean_and_spread(more)
    half = spread * student_t(len(more) - 1) / math.sqrt(len(more))
    return max(low, middle - half), min(high, middle + half)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean of at least two values, and their standard deviation."""
    middle = math.fsum(values) / len(values)
    return middle, math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def student_t(freedom: int) -> float:
    """Student's t at 95 %, two-sided, by the Cornish-Fisher series: 0.0003 too small at 5 degrees, 0.03 at 2."""
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))
