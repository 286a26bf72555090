"""`failures.txt`: each way in which rollouts failed, once, with the whole traceback. Pure."""

from collections.abc import Iterable, Sequence

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.rollout_failure import FailureCount, FirstFailure, counted

FAILURES_NAME = "failures.txt"


def first_of_each(failures: Iterable[FirstFailure]) -> list[FirstFailure]:
    """One failure of each way, the first."""
    found: dict[str, FirstFailure] = {}
    for failure in failures:
        found.setdefault(failure.way, failure)
    return list(found.values())


def failures_text(failures: Sequence[FirstFailure]) -> str:
    """The file; empty if nothing failed."""
    if not failures:
        return ""
    head = "Each way in which rollouts failed, once, as it happened first.\n"
    return "\n".join([head, *(_section(failure) for failure in failures)])


def counts_of(output: EvaluationRunOutput) -> list[FailureCount]:
    """The failed rollouts of an evaluation, and what an evaluator could not score, by cause."""
    unscored = [(_no_score_by(name, item), item.error) for name, item in _unscored(output)]
    return counted([*((failure.cause, str(failure)) for failure in output.failures), *unscored])


def failures_of(output: EvaluationRunOutput) -> list[FirstFailure]:
    """The same, one of each way with its traceback."""
    raised = (
        FirstFailure(rollout=f"item {f.item_id}", cause=f.cause, error=str(f), traceback=f.traceback)
        for f in output.failures
    )
    unscored = (
        FirstFailure(rollout=f"item {i.id}", cause=_no_score_by(name, i), error=i.error, traceback=i.traceback)
        for name, i in _unscored(output)
    )
    return first_of_each([*raised, *unscored])


def _no_score_by(evaluator: str, item: EvalOutputItem) -> str:
    return f"{item.cause} ({evaluator})"


def _unscored(output: EvaluationRunOutput) -> list[tuple[str, EvalOutputItem]]:
    return [
        (name, item)
        for name, result in output.evaluation_results
        for item in result.eval_output_items
        if item.score is None
    ]


def _section(failure: FirstFailure) -> str:
    what = failure.traceback or f"{failure.error or 'no error text was recorded'}\n"
    return f"==== {failure.cause}; {failure.rollout}\n\n{what}"
