"""`nat probe`: play some examples with the untrained model, and tell whether training has a signal."""

import json
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.finetune import run_config
from nat.cli.commands.options import Amount, rollout_options
from nat.cli.steps import StepProgress, shown_steps
from nat.files import write_text
from nat.finetuning.diagnosis.conditions_of_scores import ENOUGH_TO_TELL
from nat.finetuning.probe.run import RESCORED, ProbeOptions, ProbeResult, probe
from nat.finetuning.probe.verdict import raise_without_signal
from nat.reports.probe_page import probe_page
from nat.secrets import redact_json
from nat.wire.json import without_surrogates


@click.command("probe")
@rollout_options
@click.option(
    "--minutes",
    type=Amount(),
    default=3,
    show_default=True,
    help="Time, loading included, after which no further examples are played; 0 for no bound.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    help=f"Examples to play at most, chosen at random; default: as many as {ENOUGH_TO_TELL} rollouts take.",
)
@click.option(
    "--generations", type=click.IntRange(min=2), default=8, show_default=True, help="Rollouts of each example."
)
@click.option(
    "--rescores",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help=f"Times to score each output of the first {RESCORED} examples again, which measures the evaluator's noise.",
)
@click.option(
    "--reward", help="The evaluator whose score is the reward; default: that of `finetuning`, or the only one."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the report and all rollouts, as JSON.",
)
@click.pass_context
def probe_command(
    context: click.Context,
    /,
    *,
    config_file: Path,
    minutes: float,
    examples: int | None,
    generations: int,
    rescores: int,
    reward: str | None,
    output: Path | None,
    as_json: bool,
    **_options: object,
) -> None:
    """Play some examples with the untrained model, and tell whether training has a signal.

    It ends early when the answer is clear. The exit code is 1 if it has none.
    """
    options = ProbeOptions(examples, generations, rescores, reward, minutes)
    given = run_config(context, config_file)
    with shown_steps() as steps:
        result = event_loop.run(probe(given, options, observe=StepProgress(steps)), keep_stdout=as_json)
    if output is not None:
        write_text(output, record_text(result))
    click.echo(json.dumps(result.report.model_dump(mode="json")) if as_json else probe_page(result.report))
    raise_without_signal(result.report)


def record_text(result: ProbeResult) -> str:
    """The report and the rollouts as JSON, without token ids and secrets."""
    rollouts = [
        record.model_dump(mode="json", exclude={"rows"}) | ({"traceback": record.traceback} if record.traceback else {})
        for record in result.records
    ]
    whole = {"report": result.report.model_dump(mode="json"), "rollouts": rollouts}
    return redact_json(json.dumps(without_surrogates(whole), ensure_ascii=False), indent=2) + "\n"
