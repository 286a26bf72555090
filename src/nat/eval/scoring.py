"""Scores, without a number for what could not be scored; pure."""

import math
from collections.abc import Iterable, Sequence

from nat.data_models.evaluator import EvalInputItem, EvalOutput, EvalOutputItem


def is_number(score: object) -> bool:
    """True for what can be averaged: a finite number or a truth value."""
    return isinstance(score, bool | int | float) and math.isfinite(score)


def average(items: Iterable[EvalOutputItem]) -> float | None:
    """Mean of the scores that are numbers; None, and not zero, if there is none."""
    scores = [float(item.score) for item in items if is_number(item.score)]
    return math.fsum(scores) / len(scores) if scores else None


def unscored(item_id: object, error: str) -> EvalOutputItem:
    """The record of an item that could not be scored."""
    return EvalOutputItem(id=item_id, score=None, reasoning={"error": error}, error=error)


def checked(output: EvalOutput, given: Sequence[EvalInputItem]) -> EvalOutput:
    """An evaluator's output with one item for each one given, in their order, and its mean made anew.

    Missing, doubled, unknown and non-finite scores are the evaluator's errors; each becomes a record.
    """
    by_id: dict[object, list[EvalOutputItem]] = {}
    for item in output.eval_output_items:
        by_id.setdefault(item.id, []).append(item)
    items = [_one(item.id, by_id.pop(item.id, [])) for item in given]
    items += [unscored(item_id, f"the evaluator scored '{item_id}', which it was not given") for item_id in by_id]
    computed = average(items)
    return EvalOutput(
        average_score=output.average_score if computed is None and _no_numbers(items) else computed,
        eval_output_items=items,
    )


def _one(item_id: object, found: list[EvalOutputItem]) -> EvalOutputItem:
    if not found:
        return unscored(item_id, "the evaluator returned no score for this item")
    if len(found) > 1:
        return unscored(item_id, f"the evaluator returned {len(found)} scores for this item")
    item = found[0]
    if item.score is None and item.error is None:
        return item.model_copy(update={"error": "the evaluator returned no score for this item"})
    if isinstance(item.score, float) and not math.isfinite(item.score):
        return item.model_copy(update={"score": None, "error": f"the score is {item.score}, which is not a number"})
    return item


def _no_numbers(items: Sequence[EvalOutputItem]) -> bool:
    """True if every item was scored, but by something else than numbers (an evaluator's own records)."""
    return bool(items) and all(item.error is None for item in items)
