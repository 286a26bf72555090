"""Tell whether a series of scores has stopped rising. Pure."""

from collections.abc import Sequence

from nat.data_models.finetuning import EarlyStoppingConfig


def plateaued(scores: Sequence[float], config: EarlyStoppingConfig) -> bool:
    """True if none of the last `patience` scores beats the best one before them by more than `min_delta`."""
    if len(scores) <= config.patience:
        return False
    best_before = max(scores[: -config.patience])
    return max(scores[-config.patience :]) - best_before <= config.min_delta
