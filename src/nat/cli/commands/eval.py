"""`nat eval`: run a workflow on a dataset and score it."""

import json
import time
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.config_options import (
    config_file_option,
    endpoint_option,
    endpoint_timeout_option,
    json_option,
    override_option,
)
from nat.cli.commands.eval_summary import raise_if_nothing_counts, summary_record, summary_text
from nat.cli.commands.rollout_bar import rollout_bar
from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput
from nat.eval.evaluate import EvaluationRun
from nat.rollout.session import opened_session


@click.command("eval")
@config_file_option
@click.option("--dataset", help="A file that replaces the configured dataset; its suffix names the format.")
@click.option(
    "--result_json_path",
    default="$",
    show_default=True,
    help="Where in the workflow's output the answer is, as a JSON path.",
)
@endpoint_option
@endpoint_timeout_option
@click.option("--reps", type=click.IntRange(min=1), default=1, show_default=True, help="How often each row is run.")
@override_option
@json_option
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
    output = event_loop.run(_evaluate(config))
    seconds = time.monotonic() - began
    click.echo(json.dumps(summary_record(output, seconds)) if as_json else summary_text(output, seconds))
    raise_if_nothing_counts(output)


async def _evaluate(config: EvaluationRunConfig) -> EvaluationRunOutput:
    async with opened_session(
        config.config_file, config.override, endpoint=config.endpoint, endpoint_timeout=config.endpoint_timeout
    ) as session:
        with rollout_bar(session):
            return await EvaluationRun(config).run_and_evaluate(session_manager=session)
