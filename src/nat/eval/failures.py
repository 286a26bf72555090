"""Count failed rollouts by cause, list the first failure of each kind in `failures.txt`, and suggest a remedy. Pure."""

from collections.abc import Iterable, Sequence

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.rollout_failure import (
    CALLS_FAILED,
    NO_SCORE,
    SCORED_TOO_LATE,
    TIMED_OUT,
    FailureCount,
    FirstFailure,
    counted,
)

FAILURES_NAME = "failures.txt"


def first_of_each(failures: Iterable[FirstFailure]) -> list[FirstFailure]:
    """The first failure of each kind."""
    found: dict[str, FirstFailure] = {}
    for failure in failures:
        found.setdefault(failure.way, failure)
    return list(found.values())


def failures_text(failures: Sequence[FirstFailure]) -> str:
    """The text of the file; empty if nothing failed."""
    if not failures:
        return ""
    head = "The first failure of each kind.\n"
    return "\n".join([head, *(_section(failure) for failure in failures)])


def counts_of(output: EvaluationRunOutput) -> list[FailureCount]:
    """Failed rollouts and missing scores of an evaluation, counted by cause."""
    unscored = [(_no_score_by(name, item), item.error) for name, item in _unscored(output)]
    return counted([*((failure.cause, str(failure)) for failure in output.failures), *unscored])


def failures_of(output: EvaluationRunOutput) -> list[FirstFailure]:
    """Failed rollouts and missing scores of an evaluation, one of each kind, with its traceback."""
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


_WORKFLOW = "Fix the workflow: the traceback is in failures.txt, and `nat run` plays one input."
_EVALUATOR = "Fix the evaluator: the traceback is in failures.txt, and `nat eval` runs it on the same dataset."
_REMEDIES = {
    TIMED_OUT: "Raise eval.general.item_timeout, lower eval.general.max_concurrency, or shorten the episodes.",
    SCORED_TOO_LATE: "Find out what the evaluator waits for, or raise eval.general.scoring_timeout.",
    CALLS_FAILED: "Correct what the error names, and let the agent raise the errors of its calls: one that catches "
    "them and answers hides why it fails.",
    NO_SCORE: _EVALUATOR,
}


def remedy_of(cause: str) -> str:
    """The remedy for a cause of `nat.data_models.rollout_failure`, which may end with the evaluator's name."""
    return next((remedy for known, remedy in _REMEDIES.items() if cause.startswith(known)), _WORKFLOW)
