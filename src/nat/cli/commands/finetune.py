"""`nat finetune`: train the model inside a workflow, and say whether it got better."""

import logging
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from nat.cli import event_loop
from nat.cli.commands.config_options import (
    config_file_option,
    endpoint_option,
    endpoint_timeout_option,
    json_option,
    override_option,
)
from nat.cli.commands.finetune_summary import plan_text, result_record, summary_text
from nat.cli.progress import console_progress
from nat.data_models.finetuning import FinetuneRunConfig
from nat.finetuning.dry_run import dry_run as make_plan
from nat.finetuning.runtime import RunResult, run_finetuning


@click.command("finetune")
@config_file_option
@click.option("--dataset", help="A file that replaces the configured dataset; its suffix names the format.")
@click.option("--validation_dataset", help="Held-out examples, played before, in between and after.")
@click.option(
    "--validation_interval",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Epochs between validations.",
)
@click.option(
    "--validation_config_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Another YAML for validations; the trained model takes the place of the LLM with the same key.",
)
@click.option(
    "--result_json_path",
    default="$",
    show_default=True,
    help="Where in the workflow's output the answer is, as a JSON path.",
)
@endpoint_option
@endpoint_timeout_option
@override_option
@click.option("--dry_run", is_flag=True, help="Check everything that can be checked without training, show the plan.")
@json_option
@click.pass_context
def finetune_command(
    context: click.Context, /, *, config_file: Path, dry_run: bool, as_json: bool, **_wishes: object
) -> None:
    """Train the model inside a workflow, and say whether it got better."""
    given = run_config(context, config_file)
    if dry_run:
        plan = event_loop.run(make_plan(given))
        click.echo(plan.model_dump_json() if as_json else plan_text(plan))
        return
    result = event_loop.run(_train(given, quiet=as_json))
    click.echo(result_record(result) if as_json else summary_text(result, config_file))


def run_config(context: click.Context, config_file: Path) -> FinetuneRunConfig:
    """What the command line asks for; what it does not mention stays as the YAML has it."""
    names = FinetuneRunConfig.model_fields.keys() & context.params.keys() - {"config_file"}
    said = {n: context.params[n] for n in names if context.get_parameter_source(n) is not ParameterSource.DEFAULT}
    return FinetuneRunConfig(config_file=config_file, **said)


async def _train(given: FinetuneRunConfig, *, quiet: bool) -> RunResult:
    """Watched on a terminal, the live view tells what the log tells, warnings too, so the log is quiet."""
    console = Console(stderr=quiet)
    if console.is_terminal and logging.getLogger().getEffectiveLevel() in (logging.INFO, logging.WARNING):
        logging.getLogger().setLevel(logging.ERROR)
    with console_progress(console) as progress:
        return await run_finetuning(given, progress=progress)
