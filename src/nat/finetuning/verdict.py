"""Did the model get better? The same held-out examples before and after, paired; pure.

An example counts once, with the mean of its scores, however often it was played. The verdict is what the interval
of the mean difference says of zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from nat.errors import EvaluationError
from nat.finetuning.interval import CONFIDENCE, MIN_DIFFERING, mean_interval
from nat.runs.records import Verdict

_DIGITS = 12
"""Differences are rounded to this many decimals, so that 1 - 2/3 and 1/3 cancel and 0 is 0."""


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
        low, high = self.interval
        left_out = f" {self.num_left_out} more were left out, having no score." if self.num_left_out else ""
        return (
            f"{_CONCLUSION[self.verdict]} {self.before:.3f} → {self.after:.3f} on the same {self.num_examples} "
            f"held-out examples; difference {self.difference:+.3f}, {self.confidence:.0%} interval "
            f"{low:+.3f} to {high:+.3f}.{left_out}{self._doubt}"
        )

    @property
    def _doubt(self) -> str:
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
    pairs = [(old, new) for key, old in before.items() if old is not None and (new := after.get(key)) is not None]
    if not pairs:
        raise EvaluationError(
            f"no held-out example has a score both before ({_scored(before)} of {len(before)} have one) "
            f"and after training ({_scored(after)} of {len(after)})",
            hint="Look into the validation files under trajectories/ for the errors of the evaluator or the workflow.",
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


def _scored(scores: Mapping[str, float | None]) -> int:
    return sum(score is not None for score in scores.values())
