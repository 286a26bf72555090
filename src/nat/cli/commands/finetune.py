"""`nat finetune`: train the model inside a workflow, and report whether it improved."""

import json
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from nat.cli import event_loop
from nat.cli.commands.options import rollout_options
from nat.cli.progress import console_progress
from nat.cli.steps import StepProgress, shown_steps
from nat.data_models.finetuning import FinetuneRunConfig, ServedModel
from nat.eval.failures import remedy_of
from nat.finetuning.best_model import best_text
from nat.finetuning.diagnosis.report import explanation
from nat.finetuning.dry_run import dry_run as make_plan
from nat.finetuning.runtime import RunResult, run_finetuning
from nat.reports.plan_page import plan_text
from nat.reports.text import labelled, printable
from nat.runs.plot import duration
from nat.runs.records import RunSummary
from nat.runs.rollouts import LeftOutCause

_TIMES = "\N{MULTIPLICATION SIGN}"


@click.command("finetune")
@rollout_options
@click.option("--validation_dataset", help="Held-out examples, scored before, during and after training.")
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
    help="Another YAML for validations; the trained model replaces its LLM of the same key.",
)
@click.option(
    "--dry_run", is_flag=True, help="Check everything that can be checked without training, and print the plan."
)
@click.pass_context
def finetune_command(
    context: click.Context, /, *, config_file: Path, dry_run: bool, as_json: bool, **_options: object
) -> None:
    """Train the model inside a workflow, and report whether it improved."""
    given = run_config(context, config_file)
    if dry_run:
        with shown_steps() as steps:
            plan = event_loop.run(make_plan(given, observe=StepProgress(steps)), keep_stdout=as_json)
        click.echo(plan.model_dump_json() if as_json else plan_text(plan))
        return
    result = event_loop.run(_train(given, quiet=as_json), keep_stdout=as_json)
    click.echo(result_record(result) if as_json else summary_text(result, config_file))


def run_config(context: click.Context, config_file: Path) -> FinetuneRunConfig:
    """The options that the command line sets; the YAML decides the others."""
    names = FinetuneRunConfig.model_fields.keys() & context.params.keys() - {"config_file"}
    options = {n: context.params[n] for n in names if context.get_parameter_source(n) is not ParameterSource.DEFAULT}
    return FinetuneRunConfig(config_file=config_file, **options)


async def _train(given: FinetuneRunConfig, *, quiet: bool) -> RunResult:
    with console_progress(Console(stderr=quiet)) as progress:
        return await run_finetuning(given, progress=progress)


def summary_text(result: RunResult, config_file: Path) -> str:
    """The verdict, the training, the failures, and the paths of the files; errors in it cannot control the terminal."""
    summary, run_dir = result.summary, result.run_dir
    no_verdict = f"No verdict: {result.no_verdict or 'there was no validation dataset'}."
    verdict = result.comparison.sentence if result.comparison else no_verdict
    rows = [("" if place else "Phases", str(phase)) for place, phase in enumerate(summary.phases)]
    rows.append(("Trained", _trained(summary)))
    if summary.ended_early is not None:
        rows.append(("Ended early", summary.ended_early))
    if summary.cost is not None:
        rows.append(("Cost", f"{summary.cost:.4g}, by finetuning.budget.prices"))
    if summary.packed_tokens:
        rows.append(("Prefix sharing", _prefix_sharing(summary)))
    if summary.shortened is not None:
        rows.append(("Shortened", str(summary.shortened)))
    if summary.broken_by:
        rows.append(("Broken prefixes", _broken_prefixes(summary)))
    if summary.failures:
        rows += _failed(summary, run_dir)
    rows.append(("Folder", str(run_dir)))
    if summary.plot is not None:
        rows.append(("Plot", str(run_dir / summary.plot)))
    if summary.model is not None:
        model = run_dir / summary.model
        rows += [("Model", str(model)), ("Use it", use_command(result.trained_llm, model, config_file))]
    rows += _best(summary, run_dir)
    if result.served_model is not None:
        served = result.served_model
        rows += [("Model", str(served)), ("Use it", served_command(served, config_file))]
    return printable("\n\n".join([f"\n{verdict}", *explanation(summary.causes, run_dir), labelled(rows)]))


def _best(summary: RunSummary, run_dir: Path) -> list[tuple[str, str]]:
    """The best weights, unless they are the last ones, and how much of their score may be luck."""
    if summary.best is None or (summary.best_model is None and summary.best.epoch == summary.epochs):
        return []
    row = ("Best", best_text(summary.best, run_dir))
    if summary.best_model is not None:
        row = ("Best model", f"{run_dir / summary.best_model} ({summary.best})")
    return [row, ("", summary.best_caveat)] if summary.best_caveat else [row]


def _trained(summary: RunSummary) -> str:
    epochs = "1 epoch" if summary.epochs == 1 else f"{summary.epochs} epochs"
    return f"{epochs} in {duration(summary.seconds)}, on {summary.tokens_trained:,} sampled tokens"


def _prefix_sharing(summary: RunSummary) -> str:
    """How many times fewer tokens the learner computed because rows share prefixes, and the possible maximum."""
    ratio, ceiling = (summary.row_tokens / count for count in (summary.packed_tokens, summary.unique_tokens))
    return f"{ratio:.2f}{_TIMES} fewer tokens computed ({ceiling:.2f}{_TIMES} possible)"


def _broken_prefixes(summary: RunSummary) -> str:
    """Calls whose prompt does not contain the sampled tokens of earlier answers, so that a new row began."""
    causes = ", ".join(f"{cause} {count}" for cause, count in summary.broken_by.items())
    return f"{sum(summary.broken_by.values())} calls did not continue the tokens of earlier answers ({causes})"


def _failed(summary: RunSummary, run_dir: Path) -> list[tuple[str, str]]:
    """Counts by cause, each with an error; a remedy for the most common one; and the file of tracebacks."""
    first = summary.failures[0]
    rows = [("Failed", f"{sum(each.count for each in summary.failures)} of {summary.rollouts:,} rollouts")]
    rows += [("", str(each)) for each in summary.failures]
    if LeftOutCause(first.cause).failure:
        rows.append(("", f"→ {remedy_of(first.cause, first.error)}"))
    return [*rows, ("Tracebacks", str(run_dir / (summary.failures_file or "")))]


def use_command(llm: str | None, model: Path, config_file: Path) -> str:
    """The command that runs the same workflow with the trained model."""
    key = llm or "<name>"
    return f"nat run --config_file={config_file} -o llms.{key}.model {model} --input '…'"


def served_command(served: ServedModel, config_file: Path) -> str:
    """The command that runs the same workflow with the model on its server."""
    options = "".join(f" -o {key} {value}" for key, value in served.overrides)
    return f"nat run --config_file={config_file}{options} --input '…'"


def result_record(result: RunResult) -> str:
    """`summary.json` on one line, with the run's folder added."""
    return json.dumps({**result.summary.model_dump(mode="json"), "run_dir": str(result.run_dir)})
