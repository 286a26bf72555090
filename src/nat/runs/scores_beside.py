"""The scores by evaluators that are not the reward, as the metrics of a run's epochs have them. Pure."""

from collections.abc import Iterable

from nat.runs.records import EpochRecord, epoch_number

BESIDE, BESIDE_STD = "reward/beside_", "reward/std_beside_"
"""Prefixes of the metrics with the mean score by such an evaluator, and with its standard deviation."""


def scores_beside(epochs: Iterable[EpochRecord]) -> dict[str, dict[int, float]]:
    """Mean scores by the evaluator's name, then by the number of the epoch."""
    found: dict[str, dict[int, float]] = {}
    for epoch in epochs:
        for key, score in epoch.metrics.items():
            if key.startswith(BESIDE):
                found.setdefault(key.removeprefix(BESIDE), {})[epoch_number(epoch.epoch)] = score
    return found
