"""Tell a run that has solved its examples from one that never had anything to learn. Pure."""

from collections.abc import Sequence

from nat.runs.records import EpochRecord, ValidationRecord, epochs_text, played_epochs
from nat.wire.rewards import equal

USUAL_TOP = 1.0
"""The highest score of most evaluators; none says what its own is."""


def solved(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord], *, last: int) -> str | None:
    """Why the `last` epochs of the run leave nothing to learn, if that is a success; None if it is not.

    All their rewards must be the highest that the run has seen, lower ones must have been seen before, and something
    must have been trained: an evaluator that always gives the same score has taught nothing.
    """
    recent, played = epochs[-last:], played_epochs(epochs)
    trained = any(epoch.trained_groups for epoch in epochs)
    if len(recent) < last or not trained or any(e.relative or not e.played for e in recent):
        return None
    rewards = [reward for validation in validations for reward in validation.rewards]
    low = min([*(e.min_reward for e in played), *rewards])
    top = max([*(e.max_reward for e in played), *rewards])
    if equal([low, top]) or not equal([top, *(e.min_reward for e in recent)]):
        return None
    seen = f"every training rollout of {epochs_text(recent[0].epoch, last)} has the highest reward of the run, {top:g}"
    if equal([top, USUAL_TOP]):
        return f"Solved: {seen} (the lowest was {low:g}), so nothing is left to learn from these examples."
    return (
        f"Nothing is left to compare: {seen} (the lowest was {low:g}). If the evaluator can give more than {top:g}, "
        "the model has stopped exploring: raise num_generations, or use harder examples."
    )
