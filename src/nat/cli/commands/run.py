"""`nat run`: run a workflow on one input, or on several."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import click

from nat.builder.context import RuntimeTypeEnum
from nat.cli import event_loop
from nat.cli.commands.options import UserPathOption, config_file_option, json_option, override_options
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.errors import WorkflowError
from nat.eval.result_path import answer_of
from nat.front_end.conversion import plain
from nat.rollout.session import opened_session


@click.command("run")
@config_file_option
@click.option("--input", "inputs", multiple=True, help="Input of the workflow; may be repeated.")
@click.option(
    "--input_file",
    type=UserPathOption(exists=True, dir_okay=False, path_type=Path),
    help="A file whose text is the input.",
)
@override_options
@json_option
def run_command(
    *,
    config_file: Path,
    inputs: tuple[str, ...],
    input_file: Path | None,
    override: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Run a workflow on one input."""
    if bool(inputs) == (input_file is not None):
        raise click.UsageError("give either --input or --input_file")
    texts = inputs if input_file is None else (input_file.read_text("utf-8"),)
    with shown_steps() as steps:
        steps.begin("building the workflow and running it", after=SLOW_SECONDS)
        rollouts = event_loop.run(_run(config_file, override, texts), keep_stdout=as_json)
    for rollout in rollouts:
        if as_json:
            error = None if rollout.error is None else rollout.error.model_dump(include={"kind", "type", "message"})
            record = {"result": plain(rollout.output), "error": error, "seconds": round(rollout.seconds, 3)}
            click.echo(json.dumps(record, ensure_ascii=False))
        elif rollout.error is not None:
            click.echo(f"Workflow Failed:\n{rollout.error}")
        else:
            answer = answer_of(rollout.output, None)
            text = answer if isinstance(answer, str) else json.dumps(plain(answer), ensure_ascii=False)
            click.echo(f"Workflow Result:\n{text}")
    failures = [rollout.error for rollout in rollouts if rollout.error is not None]
    if failures:
        raise WorkflowError(
            f"{len(failures)} of {len(rollouts)} inputs failed, the first: {failures[0]}",
            hint="`nat --log-level debug run …` shows the traceback.",
        )


async def _run(config_file: Path, override: tuple[tuple[str, str], ...], texts: Sequence[str]) -> list[Rollout]:
    items = [EvalInputItem(id=str(n), input_obj=text, expected_output_obj=None) for n, text in enumerate(texts)]
    async with opened_session(config_file, override, runtime_type=RuntimeTypeEnum.RUN_OR_SERVE) as session:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(session.run(item, seed=None)) for item in items]
        return [task.result() for task in running]
