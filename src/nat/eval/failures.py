"""Count failed rollouts by cause, list the first failure of each kind in `failures.txt`, and suggest a remedy. Pure."""

from collections.abc import Iterator, Sequence

from nat.data_models.evaluate_runtime import EvaluationRunOutput
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


def failures_text(failures: Sequence[FirstFailure]) -> str:
    """The text of the file; empty if nothing failed."""
    if not failures:
        return ""
    sections = ["The first failure of each kind.\n"]
    for each in failures:
        what = each.traceback or f"{each.error or 'no error text was recorded'}\n"
        sections.append(f"==== {each.cause}; {each.rollout}\n\n{what}")
    return "\n".join(sections)


def counts_of(output: EvaluationRunOutput) -> list[FailureCount]:
    """Failed rollouts and missing scores of an evaluation, counted by cause."""
    return counted([(each.cause, each.error) for each in _failures(output)])


def failures_of(output: EvaluationRunOutput) -> list[FirstFailure]:
    """Failed rollouts and missing scores of an evaluation, one of each kind, with its traceback."""
    first: dict[str, FirstFailure] = {}
    for failure in _failures(output):
        first.setdefault(failure.way, failure)
    return list(first.values())


def _failures(output: EvaluationRunOutput) -> Iterator[FirstFailure]:
    for each in output.failures:
        error = str(each)
        yield FirstFailure(rollout=f"item {each.item_id}", cause=each.cause, error=error, traceback=each.traceback)
    for name, result in output.evaluation_results:
        for item in result.eval_output_items:
            if item.score is None:
                cause = f"{item.cause} ({name})"
                yield FirstFailure(rollout=f"item {item.id}", cause=cause, error=item.error, traceback=item.traceback)


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
