"""The numbers behind the plot's lines; pure."""

from collections.abc import Sequence
from math import hypot, sqrt

from nat.data_models.score import mean

Z_95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


def moving_average(values: Sequence[float], reach: int) -> list[float]:
    """Mean of each value and up to `reach` neighbours on either side; centred, so that the curve does not lag."""
    spans = (values[max(0, place - reach) : place + reach + 1] for place in range(len(values)))
    return [mean(span) for span in spans]


def smoothing_reach(count: int) -> int:
    """A twentieth of the epochs, at least one: enough to calm the eye without hiding a collapse."""
    return max(1, round(count / 20))


def mean_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """Lower end, mean and upper end of the mean's 95 % interval, by the normal approximation; at least one score.

    All three lie within the scores' own range.

    It says how far one point of the curve can be trusted. The verdict on a run does not rest on it: that
    compares the same examples before and after (`nat.finetuning.verdict`).
    """
    middle = mean(scores)
    if len(scores) == 1:
        return middle, middle, middle
    reach = Z_95 * hypot(*(score - middle for score in scores)) / sqrt(len(scores) * (len(scores) - 1))
    return max(min(scores), middle - reach), middle, min(max(scores), middle + reach)
