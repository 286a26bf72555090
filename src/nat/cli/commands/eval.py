"""`nat eval`: run a workflow on a dataset, score it, and print a summary."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nat.cli import event_loop
from nat.cli.commands.options import rollout_options
from nat.cli.steps import SLOW_SECONDS, StepDisplay, shown_steps
from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput
from nat.data_models.evaluator import EvalOutput
from nat.data_models.rollout_failure import FailureCount, counted
from nat.data_models.score import score_problem
from nat.errors import EvaluationError
from nat.eval.evaluate import EvaluationRun
from nat.eval.failures import counts_of, remedy_of
from nat.files import shown
from nat.reports.text import printable
from nat.rollout.session import opened_session

_HEADER = ("Evaluator", "Avg Score", "Scored", "Output File")


@click.command("eval")
@rollout_options
@click.option("--reps", type=click.IntRange(min=1), default=1, show_default=True, help="Times to run each row.")
def eval_command(
    *,
    config_file: Path,
    dataset: str | None,
    result_json_path: str,
    endpoint: str | None,
    endpoint_timeout: int,
    reps: int,
    override: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Run a workflow on a dataset and score it."""
    config = EvaluationRunConfig(
        config_file=config_file,
        dataset=dataset,
        result_json_path=result_json_path,
        endpoint=endpoint,
        endpoint_timeout=endpoint_timeout,
        reps=reps,
        override=override,
    )
    began = time.monotonic()
    with shown_steps() as steps:
        output = event_loop.run(_evaluate(config, steps), keep_stdout=as_json)
    seconds = time.monotonic() - began
    click.echo(json.dumps(summary_record(output, seconds)) if as_json else summary_text(output, seconds))
    raise_without_scores(output)


async def _evaluate(config: EvaluationRunConfig, steps: StepDisplay) -> EvaluationRunOutput:
    steps.begin("building the workflow", after=SLOW_SECONDS)
    async with opened_session(
        config.config_file, config.override, endpoint=config.endpoint, endpoint_timeout=config.endpoint_timeout
    ) as session:
        steps.begin("playing and scoring rollouts", after=SLOW_SECONDS)
        session.on_rollout.append(lambda rollout: steps.advance(failed=rollout.failed))
        session.on_pass.append(steps.expect)
        return await EvaluationRun(config).run_and_evaluate(session_manager=session)


def summary_text(output: EvaluationRunOutput, seconds: float) -> str:
    """The failures by cause, then a table of the scores in the guide's format."""
    total, failed = _counts(output)
    status = f"{failed} OF {total} ROLLOUTS FAILED" if failed else "COMPLETED"
    lines = ["=== EVALUATION SUMMARY ===", f"Workflow Status: {status}"]
    lines += [f"Failed: {count}" for count in counts_of(output)]
    lines += [f"Total Runtime: {seconds:.2f}s", "", *_table(output)]
    lines += [text for name, result in output.evaluation_results if (text := _without_number(name, result))]
    if output.workflow_output_file is not None:
        lines += ["", f"Workflow Output: {shown(output.workflow_output_file)}"]
    if output.failures_file is not None:
        lines.append(f"Tracebacks: {shown(output.failures_file)}")
    return printable("\n".join(lines))


def summary_record(output: EvaluationRunOutput, seconds: float) -> dict[str, Any]:
    """The summary for `--json`."""
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


def raise_without_scores(output: EvaluationRunOutput) -> None:
    """Raise EvaluationError if no rollout has an answer, or an evaluator has no score."""
    total, failed = _counts(output)
    if failed == total:
        raise _no_scores(f"all {total} rollouts failed", counted((f.cause, str(f)) for f in output.failures))
    for name, result in output.evaluation_results:
        if _unscored(result) == len(result.eval_output_items):
            causes = counted((item.cause, item.error) for item in result.eval_output_items)
            raise _no_scores(f"the evaluator '{name}' scored none of {total - failed} answers", causes)


def _no_scores(what: str, causes: Sequence[FailureCount]) -> EvaluationError:
    """An error with the counts by cause, and a remedy for the most common one."""
    first = causes[0]
    return EvaluationError(f"{what}: {'; '.join(map(str, causes))}", hint=remedy_of(first.cause))


def _counts(output: EvaluationRunOutput) -> tuple[int, int]:
    return len(output.eval_input.eval_input_items), len(output.failures)


def _unscored(result: EvalOutput) -> int:
    return sum(item.score is None for item in result.eval_output_items)


def _without_number(name: str, result: EvalOutput) -> str | None:
    """A line about an evaluator whose scores are not numbers and that computes no mean itself."""
    problems = [score_problem(item.score) for item in result.eval_output_items if item.score is not None]
    others = [problem for problem in problems if problem]
    if not others or result.average_score is not None:
        return None
    return f"{name}: {len(others)} of {len(result.eval_output_items)} scores are not numbers; the first: {others[0]}"


def _files(output: EvaluationRunOutput) -> dict[str, str]:
    """The output file of each evaluator, if files were written."""
    names = [name for name, _ in output.evaluation_results]
    return dict(zip(names, map(str, output.evaluator_output_files), strict=False))


def _table(output: EvaluationRunOutput) -> list[str]:
    files, rows = _files(output), []
    for name, result in output.evaluation_results:
        mean = "-" if result.average_score is None else result.average_score
        scored = f"{len(result.eval_output_items) - _unscored(result)}/{len(output.eval_input.eval_input_items)}"
        rows.append((name, f"{mean:.4f}" if isinstance(mean, float | int) else str(mean), scored, files.get(name, "-")))
    if not rows:
        return ["(no evaluators are configured)"]
    widths = [max(len(cell) for cell in column) for column in zip(_HEADER, *rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (_HEADER, *rows)]
    return [lines[0].rstrip(), "-+-".join("-" * width for width in widths), *(line.rstrip() for line in lines[1:])]
