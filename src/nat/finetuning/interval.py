"""A 95 % interval for the mean of paired differences that holds for few examples; pure.

Two intervals of Student's t are combined, since each fails where the other holds:

- `cautious` adds two examples, one that rose and one that fell by the whole range of the scores (for wins and
  losses this is the interval of Bonett and Price, 2012). It allows for changes that too few examples did not show,
  as when nearly all differences are zero, and it is too wide to find a change in a few continuous scores.
- `corrected` is the plain t-interval, widened to that of Hall (1992), which corrects it for skew. It is right
  about a model that did not change: differences that fall as easily as they rise are symmetric.

So zero is judged by `corrected`, and how large a change may be by `cautious`. `python -m bench verdict` simulates
the result beside other methods; docs/concepts/validation.md has the table.
"""

from collections.abc import Sequence
from math import cbrt, fsum, sqrt
from statistics import NormalDist

CONFIDENCE = 0.95
MIN_DIFFERING = 6
"""With fewer examples that differ, zero is in the interval: if n of them all go in the same direction, chance does
that in 2 of 2ⁿ cases, which is below 5 % from n = 6 on."""

_NO_SKEW = 1e-9
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

Interval = tuple[float, float]


def mean_interval(differences: Sequence[float], scale: float) -> Interval:
    """Where the mean difference lies; `scale`, above zero, is the largest difference that can be."""
    low, high = _cautious(differences, scale)
    if sum(difference != 0 for difference in differences) < MIN_DIFFERING:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        lowest, highest = _corrected(differences)
        low, high = (lowest if lowest > 0 else low), (highest if highest < 0 else high)
    return max(low, -scale), min(high, scale)


def _cautious(differences: Sequence[float], scale: float) -> Interval:
    more = [*differences, scale, -scale]
    middle, spread = _mean_and_spread(more)
    half = spread * _t(len(more) - 1) / sqrt(len(more))
    return middle - half, middle + half


def _corrected(differences: Sequence[float]) -> Interval:
    count, (mean, spread) = len(differences), _mean_and_spread(differences)
    if spread == 0:
        return mean, mean
    reach = _t(count - 1) / sqrt(count)
    skew = fsum((difference - mean) ** 3 for difference in differences) / count
    skew /= (spread * sqrt((count - 1) / count)) ** 3
    corrected = [mean - _hall(sign * reach, skew, count) * spread for sign in (1, -1)]
    return min(mean - reach * spread, corrected[0]), max(mean + reach * spread, corrected[1])


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    mean = fsum(values) / len(values)
    return mean, sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _hall(x: float, skew: float, count: int) -> float:
    """Hall's cubic transformation of a studentized mean, inverted; `x` itself without skew."""
    if abs(skew) < _NO_SKEW:
        return x
    return float(cbrt(1 + skew * (x - skew / (6 * count))) - 1) * 3 / skew


def _t(freedom: int) -> float:
    """Student's t at the confidence, by the Cornish-Fisher series: 0.0003 too small at 5 degrees, 0.03 at 2."""
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))
