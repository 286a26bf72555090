"""The numbers behind the plot's lines; pure."""

from collections.abc import Sequence
from math import sqrt

Z_95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


def moving_average(values: Sequence[float], reach: int) -> list[float]:
    """Mean of each value and up to `reach` neighbours on either side; centred, so that the curve does not lag."""
    spans = (values[max(0, place - reach) : place + reach + 1] for place in range(len(values)))
    return [sum(span) / len(span) for span in spans]


def smoothing_reach(count: int) -> int:
    """A twentieth of the epochs, at least one: enough to calm the eye without hiding a collapse."""
    return max(1, round(count / 20))


def mean_interval(scores: Sequence[float]) -> tuple[float, float]:
    """The mean's 95 % interval by the normal approximation, within the scores' own range; needs at least one score.

    It says how far one point of the curve can be trusted. The verdict on a run does not rest on it: that
    compares the same examples before and after (`nat.finetuning.verdict`).
    """
    count = len(scores)
    mean = sum(scores) / count
    if count == 1:
        return mean, mean
    variance = sum((score - mean) ** 2 for score in scores) / (count - 1)
    reach = Z_95 * sqrt(variance / count)
    return max(min(scores), mean - reach), min(max(scores), mean + reach)
