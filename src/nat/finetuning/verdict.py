"""The verdict of a run: compares the scores of the same held-out examples before and after training. Pure.

An example counts once, with the mean of its scores, however often it was played. The verdict depends on whether the
95 % interval of the mean difference contains zero.

For few examples, two intervals of Student's t are combined, since each is wrong in cases where the other is right:

- `cautious` adds two examples, one that rose and one that fell by the whole range of the scores (for wins and
  losses this is the interval of Bonett and Price, 2012). It allows for changes that too few examples did not show,
  as when nearly all differences are zero, and it is too wide to find a change in a few continuous scores.
- `corrected` is the plain t-interval, widened to that of Hall (1992), which corrects it for skew. It is right
  about a model that did not change: differences that fall as easily as they rise are symmetric.

So `corrected` decides about zero, and `cautious` about how large a change may be. docs/evidence/verdict.md
simulates the result beside other methods.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cbrt, fsum, sqrt
from statistics import NormalDist

from nat.data_models.score import is_score
from nat.errors import EvaluationError
from nat.runs.records import Verdict

CONFIDENCE = 0.95
MIN_DIFFERING = 6
"""With fewer examples that differ, zero is in the interval: if n of them all go in the same direction, chance does
that in 2 of 2ⁿ cases, which is below 5 % from n = 6 on."""

_DIGITS = 12
"""Differences are rounded to this many decimals, so that 1 - 2/3 and 1/3 cancel and 0 is 0."""
_NO_SKEW = 1e-9
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

Interval = tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same examples."""

    before: float
    """Mean score over the examples that have one both times."""
    after: float
    difference: float
    interval: tuple[float, float]
    confidence: float
    verdict: Verdict
    num_examples: int
    """Examples with a score both times."""
    num_differing: int
    """Examples whose score changed."""
    num_left_out: int
    """Examples without a score before, after, or both."""

    @property
    def sentence(self) -> str:
        """The verdict in words, with its numbers."""
        return self.described(_CONCLUSION[self.verdict])

    def described(self, conclusion: str) -> str:
        """A conclusion of the caller's, with the numbers."""
        low, high = self.interval
        left_out = f" {self.num_left_out} more were left out, having no score." if self.num_left_out else ""
        return (
            f"{conclusion} {self.before:.3f} → {self.after:.3f} on the same {self.num_examples} "
            f"held-out examples; difference {self.difference:+.3f}, {self.confidence:.0%} interval "
            f"{low:+.3f} to {high:+.3f}.{left_out}{self._caveat}"
        )

    @property
    def _caveat(self) -> str:
        if self.verdict is not Verdict.NOT_SHOWN:
            return ""
        if self.num_examples < MIN_DIFFERING:
            return f" Too few held-out examples: a verdict takes at least {MIN_DIFFERING} with both scores."
        if self.num_differing < MIN_DIFFERING:
            changed = {0: "No example", 1: "Only 1 example"}.get(
                self.num_differing, f"Only {self.num_differing} examples"
            )
            return f" {changed} changed; at least {MIN_DIFFERING} must, to tell it from chance."
        return " The interval contains zero; more held-out examples would make it narrower."


_CONCLUSION = {
    Verdict.IMPROVED: "Improved:",
    Verdict.NOT_SHOWN: "No improvement shown:",
    Verdict.WORSE: "Worse:",
}


def compare(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> Comparison:
    """Judge scores by example id; an example without a score in one of the two is left out of both.

    Raises `EvaluationError` if no example has both scores.
    """
    pairs = [
        (old, new)
        for key, old in before.items()
        if old is not None and (new := after.get(key)) is not None and is_score(old) and is_score(new)
    ]
    if not pairs:
        raise EvaluationError(
            f"no held-out example has a score both before ({_scored(before)} of {len(before)} have one) "
            f"and after training ({_scored(after)} of {len(after)})",
            hint="The validation files under trajectories/ have the errors of the evaluator or the workflow.",
        )
    differences = [round(new - old, _DIGITS) for old, new in pairs]
    every = [score for pair in pairs for score in pair]
    low, high = mean_interval(differences, scale=round(max(every) - min(every), _DIGITS) or 1.0)
    return Comparison(
        before=fsum(old for old, _ in pairs) / len(pairs),
        after=fsum(new for _, new in pairs) / len(pairs),
        difference=round(fsum(differences) / len(pairs), _DIGITS),
        interval=(low, high),
        confidence=CONFIDENCE,
        verdict=Verdict.IMPROVED if low > 0 else Verdict.WORSE if high < 0 else Verdict.NOT_SHOWN,
        num_examples=len(pairs),
        num_differing=sum(difference != 0 for difference in differences),
        num_left_out=len(before.keys() | after.keys()) - len(pairs),
    )


def smallest_improvement(num_examples: int, *, changed: float | None = None) -> float | None:
    """The smallest rise of the mean that is judged as an improvement, for scores of 0 and 1; None if none is.

    `changed` is the share of the examples that rise or fall; without it, none falls.
    """
    count = num_examples if changed is None else round(changed * num_examples)
    rises_falls = [(rises, 0 if changed is None else count - rises) for rises in range(count + 1)]

    def improved(rises: int, falls: int) -> bool:
        unchanged = [0.0] * (num_examples - rises - falls)
        return mean_interval([1.0] * rises + [-1.0] * falls + unchanged, scale=1.0)[0] > 0

    place = bisect_left(rises_falls, x=True, key=lambda each: improved(*each))  # the more rise, the higher the interval
    if place == len(rises_falls):
        return None
    rises, falls = rises_falls[place]
    return (rises - falls) / num_examples


def _scored(scores: Mapping[str, float | None]) -> int:
    return sum(map(is_score, scores.values()))


def mean_interval(differences: Sequence[float], scale: float) -> Interval:
    """The 95 % interval of the mean difference; `scale`, above zero, is the largest possible difference."""
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
