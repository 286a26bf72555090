"""The numbers behind the plot's lines; pure."""

from collections.abc import Sequence
from math import sqrt

Z_95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and up to `window - 1` values before it; the first ones average what there is."""
    spans = (values[max(0, end - window) : end] for end in range(1, len(values) + 1))
    return [sum(span) / len(span) for span in spans]


def smoothing_window(count: int) -> int:
    """A tenth of the epochs, at least three: enough to calm the eye without hiding a collapse."""
    return max(3, round(count / 10))


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
