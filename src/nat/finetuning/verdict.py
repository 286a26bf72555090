"""The verdict of a run: compares the scores of the same held-out examples before and after training. Pure.

An example counts once, with the mean of its scores, however often it was played. The verdict depends on whether the
95 % interval of the mean difference contains zero.

An example that fails on one side only is evidence, too. Its score is not known, so the interval is computed twice: with
the failed ones as bad and as good for the trained model as any score seen. There is a verdict if both agree.

For few examples, two intervals of Student's t are combined, since each is wrong in cases where the other is right:

- `cautious` adds two examples, one that rose and one that fell by the whole range of the scores. It allows for changes
  that too few examples did not show, as when nearly all differences are zero, and it is too wide to find a change in a
  few continuous scores.
- `corrected` is the plain t-interval, widened to that of Hall (1992), which corrects it for skew. It is right
  about a model that did not change: differences that fall as easily as they rise are symmetric.

So `corrected` decides about zero, and `cautious` about how large a change may be. docs/evidence/verdict.md
simulates the result beside other methods.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import cbrt, fsum, sqrt

from nat.data_models.score import CONFIDENCE, interval, is_score, mean, mean_and_spread, student_t
from nat.runs.records import ValidationRecord, Verdict, score_range

MIN_DIFFERING = 6
"""With fewer examples that differ, zero is in the interval: if n of them all go in the same direction, chance does
that in 2 of 2ⁿ cases, which is below 5 % from n = 6 on."""

_DIGITS = 12
"""Differences are rounded to this many decimals, so that 1 - 2/3 and 1/3 cancel and 0 is 0."""
_NO_SKEW = 1e-9

Interval = tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same examples."""

    before: float
    """Mean over the examples that have a score before or after; one that failed counts as the lowest score seen."""
    after: float
    difference: float
    interval: tuple[float, float]
    """It covers all scores that the failed ones may have."""
    confidence: float
    verdict: Verdict
    num_examples: int
    """Examples with a score before or after."""
    num_differing: int
    """Examples whose score changed."""
    num_failing_since: int
    """Examples that fail after, themselves or in a copy."""
    num_failed_before: int
    num_left_out: int
    """Examples without a score both times."""
    error: str | None = None
    """What most of the examples failed with that fail on one side only."""
    constant: str = ""
    """What one answer to all examples would reach, as a sentence; empty where no expected answer repeats."""

    @property
    def sentence(self) -> str:
        """The verdict in words, with its numbers."""
        return self.described(_CONCLUSION[self.verdict], since="fail since training", before="failed before training")

    def described(self, conclusion: str, *, since: str, before: str) -> str:
        """A conclusion of the caller's, with the numbers, and the caller's words for failures on one side."""
        low, high = self.interval
        numbers = (
            f"{self.before:.3f} → {self.after:.3f} on the same {self.num_examples} "
            f"held-out examples; difference {self.difference:+.3f}, {self.confidence:.0%} interval "
            f"{low:+.3f} to {high:+.3f}."
        )
        counts, total = ((self.num_failing_since, since), (self.num_failed_before, before)), self.num_examples
        if failures := " and ".join(f"{count} of {total} {how}" for count, how in counts if count):
            failures += f" (first error: {self.error})." if self.error else "."
            counted = "A failed one counts as the lowest score seen; the interval allows for any."
            parts = [numbers, failures, counted]
            if self.verdict is Verdict.CANNOT_TELL:
                parts = [failures, numbers, counted, "Fix the error, or set reward_function.failed_score."]
            numbers = " ".join(parts)
        left_out = f" {self.num_left_out} more were left out, having no score." if self.num_left_out else ""
        return f"{conclusion} {numbers}{left_out}{self._caveat}{self.constant}"

    @property
    def _caveat(self) -> str:
        if self.verdict is not Verdict.NOT_SHOWN:
            return ""
        if self.num_examples < MIN_DIFFERING:
            return f" Too few held-out examples: a verdict takes at least {MIN_DIFFERING}."
        if self.num_differing < MIN_DIFFERING:
            changed = f"{self.num_differing} of {self.num_examples} examples changed"
            return f" {changed}; at least {MIN_DIFFERING} must, to tell it from chance."
        return " The interval contains zero; more held-out examples would make it narrower."


_CONCLUSION = {
    Verdict.IMPROVED: "Improved:",
    Verdict.NOT_SHOWN: "No improvement shown:",
    Verdict.WORSE: "Worse:",
    Verdict.CANNOT_TELL: "Cannot tell:",
}


def compare_validations(before: ValidationRecord, after: ValidationRecord) -> Comparison | None:
    """Judge two validations, copies of an example as one, and name the error that is new in one of them."""
    found = compare(before.scores, after.scores, before.copies | after.copies)
    if found is None or found.num_failing_since == found.num_failed_before == 0:
        return found
    old, new = (before, after) if found.num_failing_since else (after, before)
    known = {each.cause: each.count for each in old.failures}
    risen = max(new.failures, key=lambda each: each.count - known.get(each.cause, 0), default=None)
    return replace(found, error=None if risen is None else risen.error or risen.cause)


def compare(
    before: Mapping[str, float | None], after: Mapping[str, float | None], copies: Mapping[str, str] | None = None
) -> Comparison | None:
    """Judge scores by example id; None if no example that was played both times has a score.

    An example without a score both times is left out. `copies` are examples that repeat another one.
    """
    played, names = [key for key in before if key in after], copies or {}
    old, new = (
        {key: score for key in played if (score := own[key]) is not None and is_score(score)} for own in (before, after)
    )
    examples: dict[str, list[str]] = {}
    for key in (key for key in played if key in old or key in new):
        examples.setdefault(names.get(key, key), []).append(key)
    if not examples:
        return None
    lowest, highest = score_range([*old.values(), *new.values()])

    def pairs(failed_before: float, failed_after: float) -> list[tuple[float, float]]:
        return [
            (mean([old.get(key, failed_before) for key in keys]), mean([new.get(key, failed_after) for key in keys]))
            for keys in examples.values()
        ]

    shown, worst, best = pairs(lowest, lowest), pairs(highest, lowest), pairs(lowest, highest)
    every = [score for pair in (*worst, *best) for score in pair]
    scale = round(max(every) - min(every), _DIGITS) or 1.0
    lows, highs = zip(*(interval_of(_differences(each), scale) for each in (worst, best)), strict=True)
    low, high = min(lows), max(highs)
    verdict = Verdict.NOT_SHOWN if max(lows) <= 0 <= min(highs) else Verdict.CANNOT_TELL
    if low > 0 or high < 0:
        verdict = Verdict.IMPROVED if low > 0 else Verdict.WORSE
    differences = _differences(shown)
    return Comparison(
        before=fsum(old for old, _ in shown) / len(shown),
        after=fsum(new for _, new in shown) / len(shown),
        difference=round(fsum(differences) / len(shown), _DIGITS),
        interval=(low, high),
        confidence=CONFIDENCE,
        verdict=verdict,
        num_examples=len(shown),
        num_differing=sum(difference != 0 for difference in differences),
        num_failing_since=sum(any(key not in new for key in keys) for keys in examples.values()),
        num_failed_before=sum(any(key not in old for key in keys) for keys in examples.values()),
        num_left_out=len({names.get(key, key) for key in played}) - len(shown),
    )


def _differences(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [round(new - old, _DIGITS) for old, new in pairs]


def smallest_improvement(num_examples: int) -> float | None:
    """The smallest rise of the mean that is judged as an improvement, for scores of 0 and 1; None if none is."""

    def improved(rises: int) -> bool:
        return interval_of([1.0] * rises + [0.0] * (num_examples - rises), scale=1.0)[0] > 0

    rises = bisect_left(range(num_examples + 1), x=True, key=improved)  # the more rise, the higher the interval
    return None if rises > num_examples else rises / num_examples


def interval_of(differences: Sequence[float], scale: float) -> Interval:
    """The 95 % interval of the mean difference; `scale`, above zero, is the largest possible difference."""
    low, high = interval(differences, -scale, scale)
    if sum(difference != 0 for difference in differences) < MIN_DIFFERING:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        lowest, highest = _corrected(differences)
        low, high = (lowest if lowest > 0 else low), (highest if highest < 0 else high)
    return max(low, -scale), min(high, scale)


def _corrected(differences: Sequence[float]) -> Interval:
    count, (mean, spread) = len(differences), mean_and_spread(differences)
    if spread == 0:
        return mean, mean
    reach = student_t(count - 1) / sqrt(count)
    skew = fsum((difference - mean) ** 3 for difference in differences) / count
    skew /= (spread * sqrt((count - 1) / count)) ** 3
    corrected = [mean - _hall(sign * reach, skew, count) * spread for sign in (1, -1)]
    return min(mean - reach * spread, corrected[0]), max(mean + reach * spread, corrected[1])


def _hall(x: float, skew: float, count: int) -> float:
    """Hall's cubic transformation of a studentized mean, inverted; `x` itself without skew."""
    if abs(skew) < _NO_SKEW:
        return x
    return float(cbrt(1 + skew * (x - skew / (6 * count))) - 1) * 3 / skew
