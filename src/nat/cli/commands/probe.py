"""`nat probe`: play the first epoch with the untrained model, and tell whether training has a signal."""

import json
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.finetune import run_config
from nat.cli.commands.options import UserPathOption, playing_options
from nat.cli.steps import StepProgress, shown_steps
from nat.files import write_text
from nat.finetuning.probe import ProbeResult, probe
from nat.reports.probe_page import probe_page
from nat.secrets import redact_json
from nat.wire.json import without_surrogates


@click.command("probe")
@playing_options
@click.option("--examples", type=click.IntRange(min=1), help="Examples to play; default: those of the first epoch.")
@click.option(
    "--output",
    type=UserPathOption(dir_okay=False, path_type=Path),
    help="File for the report and all rollouts, as JSON.",
)
@click.pass_context
def probe_command(
    context: click.Context,
    /,
    *,
    config_file: Path,
    examples: int | None,
    output: Path | None,
    as_json: bool,
    **_options: object,
) -> None:
    """Play the first epoch with the untrained model, and tell whether training has a signal.

    The exit code is 1 if it has none.
    """
    given = run_config(context, config_file)
    with shown_steps() as steps:
        result = event_loop.run(probe(given, examples=examples, observe=StepProgress(steps)), keep_stdout=as_json)
    if output is not None:
        write_text(output, record_text(result))
    report = result.report
    click.echo(json.dumps(report.model_dump(mode="json")) if as_json else probe_page(report))
    context.exit(0 if report.has_signal else 1)


def record_text(result: ProbeResult) -> str:
    """The report and the rollouts as JSON, without token ids and secrets."""
    rollouts = [
        record.model_dump(mode="json", exclude={"rows"}) | ({"traceback": record.traceback} if record.traceback else {})
        for record in result.records
    ]
    whole = {"report": result.report.model_dump(mode="json"), "rollouts": rollouts}
    return redact_json(json.dumps(without_surrogates(whole), ensure_ascii=False), indent=2) + "\n"
