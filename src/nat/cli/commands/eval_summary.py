"""What `nat eval` says at its end, for people and for machines; pure."""

from collections.abc import Sequence
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalOutput
from nat.data_models.rollout_failure import FailureCount, counted
from nat.data_models.score import problem_of
from nat.errors import EvaluationError
from nat.eval.failures import counts_of, remedy_of

_HEADER = ("Evaluator", "Avg Score", "Scored", "Output File")


def summary_text(output: EvaluationRunOutput, seconds: float) -> str:
    """The table that the guide shows, with what failed above it."""
    total, failed = _counts(output)
    lines = ["=== EVALUATION SUMMARY ===", f"Workflow Status: {_status(total, failed)}"]
    lines += [f"Failed: {count}" for count in counts_of(output)]
    lines += [f"Total Runtime: {seconds:.2f}s", "", *_table(_rows(output))]
    lines += [text for name, result in output.evaluation_results if (text := _without_number(name, result))]
    if output.workflow_output_file is not None:
        lines += ["", f"Workflow Output: {output.workflow_output_file}"]
    if output.failures_file is not None:
        lines.append(f"Tracebacks: {output.failures_file}")
    return "\n".join(lines)


def summary_record(output: EvaluationRunOutput, seconds: float) -> dict[str, Any]:
    """The same facts for `--json`."""
    total, failed = _counts(output)
    files = _files(output)
    return {
        "rollouts": total,
        "failed": failed,
        "failures": [count.model_dump() for count in counts_of(output)],
        "failures_file": str(output.failures_file) if output.failures_file else None,
        "seconds": round(seconds, 3),
        "evaluators": [
            {
                "name": name,
                "average_score": result.average_score,
                "scored": len(result.eval_output_items) - _unscored(result),
                "unscored": _unscored(result),
                "output_file": files.get(name),
            }
            for name, result in output.evaluation_results
        ],
        "workflow_output_file": str(output.workflow_output_file) if output.workflow_output_file else None,
    }


def raise_if_nothing_counts(output: EvaluationRunOutput) -> None:
    """An evaluation without an answer, or an evaluator without a score, has failed: EvaluationError."""
    total, failed = _counts(output)
    if failed == total:
        raise _nothing(f"all {total} rollouts failed", counted((f.cause, str(f)) for f in output.failures))
    for name, result in output.evaluation_results:
        if _unscored(result) == len(result.eval_output_items):
            causes = counted((item.cause, item.error) for item in result.eval_output_items)
            raise _nothing(f"the evaluator '{name}' scored none of {total - failed} answers", causes)


def _nothing(what: str, causes: Sequence[FailureCount]) -> EvaluationError:
    """The counts by cause, and what to do about the commonest."""
    first = causes[0]
    return EvaluationError(f"{what}: {'; '.join(map(str, causes))}", hint=remedy_of(first.cause, first.error))


def _counts(output: EvaluationRunOutput) -> tuple[int, int]:
    return len(output.eval_input.eval_input_items), len(output.failures)


def _status(total: int, failed: int) -> str:
    return f"{failed} OF {total} ROLLOUTS FAILED" if failed else "COMPLETED"


def _unscored(result: EvalOutput) -> int:
    return sum(item.score is None for item in result.eval_output_items)


def _without_number(name: str, result: EvalOutput) -> str | None:
    """Scores that are records of the evaluator's own, without a mean of its own: nothing can be made of them."""
    problems = [problem_of(item.score) for item in result.eval_output_items if item.score is not None]
    others = [problem for problem in problems if problem]
    if not others or result.average_score is not None:
        return None
    return f"{name}: {len(others)} of {len(result.eval_output_items)} scores are no numbers; the first: {others[0]}"


def _files(output: EvaluationRunOutput) -> dict[str, str]:
    """The file of each evaluator; there are none if nothing was written."""
    names = [name for name, _ in output.evaluation_results]
    return dict(zip(names, map(str, output.evaluator_output_files), strict=False))


def _rows(output: EvaluationRunOutput) -> list[tuple[str, str, str, str]]:
    files = _files(output)
    return [
        (
            name,
            _score_text(result.average_score),
            f"{len(result.eval_output_items) - _unscored(result)}/{len(output.eval_input.eval_input_items)}",
            files.get(name, "-"),
        )
        for name, result in output.evaluation_results
    ]


def _score_text(score: object) -> str:
    return f"{score:.4f}" if isinstance(score, int | float) else ("-" if score is None else str(score))


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["(no evaluators are configured)"]
    widths = [max(len(cell) for cell in column) for column in zip(_HEADER, *rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (_HEADER, *rows)]
    return [lines[0].rstrip(), "-+-".join("-" * width for width in widths), *(line.rstrip() for line in lines[1:])]
