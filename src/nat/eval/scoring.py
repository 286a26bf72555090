"""Scores, without a number for what could not be scored; pure."""

from collections.abc import Iterable, Sequence
from numbers import Real

from nat.data_models.evaluator import EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.score import is_score, mean, problem_of
from nat.errors import describe_error, traceback_of


def average(items: Iterable[EvalOutputItem]) -> float | None:
    """Mean of the scores that are numbers; None, and not zero, if there is none."""
    scores = [float(item.score) for item in items if is_score(item.score)]
    return mean(scores) if scores else None


def unscored(item_id: object, error: str | BaseException) -> EvalOutputItem:
    """The record of an item that could not be scored."""
    if isinstance(error, str):
        return EvalOutputItem(id=item_id, score=None, reasoning={"error": error}, error=error)
    item = unscored(item_id, describe_error(error))
    return item.model_copy(update={"traceback": traceback_of(error)})


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
    if is_score(item.score):
        return item.model_copy(update={"score": item.score if isinstance(item.score, int) else float(item.score)})
    if item.score is not None and not isinstance(item.score, Real):  # records, which `compute_reward` may understand
        return item
    return item.model_copy(update={"score": None, "error": item.error or problem_of(item.score)})


def _no_numbers(items: Sequence[EvalOutputItem]) -> bool:
    """True if every item was scored, but by something else than numbers (an evaluator's own records)."""
    return bool(items) and all(item.error is None for item in items)
