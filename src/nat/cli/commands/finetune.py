"""`nat finetune`: train the model inside a workflow, and report whether it improved."""

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from pydantic import ValidationError
from rich.console import Console

from nat.cli import event_loop
from nat.cli.commands.options import UserPathOption, optional_config_file, rollout_options, trust_option
from nat.cli.progress import console_progress
from nat.cli.steps import StepProgress, shown_steps
from nat.config.load import load_config
from nat.data_models.finetuning import FinetuneRunConfig
from nat.data_models.rollout_failure import FAILURES
from nat.errors import ConfigError, JournalError, findings_of
from nat.eval.failures import remedy_of
from nat.files import folder_bytes
from nat.finetuning.best_model import BEST_MODEL, LAST_MODEL, best_text
from nat.finetuning.diagnosis.gather import explanation
from nat.finetuning.dry_run import dry_run as make_plan
from nat.finetuning.runtime import RunResult, run_finetuning
from nat.reports.plan_page import plan_text
from nat.reports.text import labelled, printable
from nat.runs.find import find_run, newest_if_unfinished, newest_unfinished, started_here, started_in
from nat.runs.journal import reading
from nat.runs.plot import duration
from nat.runs.preemption import DEFAULT_GRACE, Preemption
from nat.runs.recorded_config import config_of, finetuning_value, value_at
from nat.runs.records import RunSummary
from nat.secrets import REDACTED
from nat.sizing.memory import bytes_text
from nat.wire.serving import LLMS

NEWEST, AUTO = "newest", "auto"
"""Words that --resume takes in place of a run."""
_OF_TRAINING = ("finetuning.", "trainers.", "trainer_adapters.", "trajectory_builders.", "eval.")
"""Beginnings of keys that decide nothing of how a workflow plays."""


@click.command("finetune")
@partial(rollout_options, config_file=optional_config_file)
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
    type=UserPathOption(exists=True, dir_okay=False),
    help="Another YAML for validations; the trained model replaces its LLM of the same key.",
)
@click.option(
    "--resume",
    metavar="[RUN]",
    is_flag=False,
    flag_value=NEWEST,
    help="Go on with an unfinished run: a folder, an id, or by default the newest one that was started in this folder, "
    "with --config_file that of its output directory; `auto` means the newest run of all, or a new one if that has "
    "completed.",
)
@click.option(
    "--accept_changes",
    is_flag=True,
    help="Go on although configuration or data differ from those that the run began with.",
)
@trust_option
@click.option(
    "--grace",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_GRACE,
    show_default=True,
    help="Seconds from SIGTERM to the end of the process; give the service manager a few more.",
)
@click.option(
    "--dry_run", is_flag=True, help="Check everything that can be checked without training, and print the plan."
)
@click.pass_context
def finetune_command(
    context: click.Context,
    /,
    *,
    config_file: Path | None,
    resume: str | None,
    accept_changes: bool,
    trust: bool,
    grace: float,
    dry_run: bool,
    as_json: bool,
    **_options: object,
) -> None:
    """Train the model inside a workflow, and report whether it improved."""
    options = set_options(context)
    run_dir = None if resume is None else _run_to_resume(resume, options)
    if run_dir is None and config_file is None:
        none = "There is no unfinished run that was started in this folder, and to begin one: m" if resume else "M"
        raise click.UsageError(f"{none}issing option '--config_file'.")
    given = FinetuneRunConfig(**options) if run_dir is None else as_begun(run_dir, options, trust=trust)
    if dry_run:
        with shown_steps() as steps:
            planned = make_plan(given, resume=run_dir, accept_changes=accept_changes, observe=StepProgress(steps))
            plan = event_loop.run(planned, keep_stdout=as_json)
        click.echo(plan.model_dump_json() if as_json else plan_text(plan))
        return
    preemption = Preemption(grace)
    training = _train(given, run_dir, preemption, accept_changes=accept_changes, quiet=as_json)
    result = event_loop.run(training, keep_stdout=as_json, preemption=preemption)
    record = {**result.summary.model_dump(mode="json"), "run_dir": str(result.run_dir)}
    click.echo(json.dumps(record) if as_json else summary_text(result, given))


def run_config(context: click.Context, config_file: Path) -> FinetuneRunConfig:
    """The options that the command line sets, with this file."""
    return FinetuneRunConfig(**set_options(context) | {"config_file": config_file})


def set_options(context: click.Context) -> dict[str, Any]:
    """The options that the command line sets; the YAML decides the others."""
    names = FinetuneRunConfig.model_fields.keys() & context.params.keys()
    return {n: context.params[n] for n in names if context.get_parameter_source(n) is not ParameterSource.DEFAULT}


def _run_to_resume(name: str, options: Mapping[str, Any]) -> Path | None:
    """The folder of the run; None if `auto` finds none.

    Raises:
        JournalError: there is no such run.

    """
    if name not in (NEWEST, AUTO):
        return find_run(name)
    file = options.get("config_file")
    root = None if file is None else load_config(file, options.get("override", ())).finetuning.output_dir
    found = newest_if_unfinished(root, trained=True) if name == AUTO else newest_unfinished(root)
    if found is None and name == NEWEST:
        where = "that were started in this folder" if root is None else f"below {root}"
        raise JournalError(
            f"there is no unfinished run among those {where}",
            hint="name the run's folder or its id: `--resume RUN`; `nat runs list` shows all runs",
        )
    return found


def as_begun(run_dir: Path, options: Mapping[str, Any], *, trust: bool = False) -> FinetuneRunConfig:
    """The options that a run began with, and those that the command line sets now; a run of others gives none.

    Raises:
        ConfigError: what it began with is of somebody whom the user does not `trust`, its YAML is not there, or a
            value was a secret.

    """
    with reading(run_dir) as journal:
        recorded = finetuning_value(config_of(journal.info().config_text), "run_configuration") or {}
    if not trust and not started_here(run_dir):
        if "config_file" not in options:
            began = value_at(recorded, "config_file")
            raise ConfigError(
                [f"--config_file: the run began with {began}, and you have not started it here"],
                hint="its YAML and options run code: read them, and add --trust, or give your own",
            )
        recorded = {}
    try:
        given = FinetuneRunConfig.model_validate({**recorded, **options})
    except (ValidationError, TypeError) as error:
        seen = findings_of(error)[0] if isinstance(error, ValidationError) else error
        raise JournalError(
            f"the run {run_dir.name} has not recorded the options that it began with: {seen}",
            hint="begin a new run with its YAML: `nat finetune --config_file FILE`",
        ) from error
    secret = [key for key, text in given.override if REDACTED in text]
    if secret:
        raise ConfigError(
            [f"{key}: its value was a secret, which the run has not recorded" for key in secret],
            hint="give all of the run's `-o KEY VALUE` again",
        )
    if not isinstance(given.config_file, Path) or not given.config_file.is_file():
        begun = started_in(run_dir)
        folder = "the folder in which it was started" if begun is None else f"{begun}, where it was started"
        raise ConfigError(
            [f"--config_file: the run began with {given.config_file}, which is not there"],
            hint=f"go to {folder}, or give --config_file",
        )
    return given


async def _train(
    given: FinetuneRunConfig, resume: Path | None, preemption: Preemption, *, accept_changes: bool, quiet: bool
) -> RunResult:
    with console_progress(Console(stderr=quiet)) as progress:
        return await run_finetuning(
            given, resume=resume, accept_changes=accept_changes, progress=progress, preemption=preemption
        )


def summary_text(result: RunResult, given: FinetuneRunConfig) -> str:
    """Verdict, cost, what failed, where the results are and what comes next; nothing in it controls the terminal."""
    summary, run_dir = result.summary, result.run_dir
    no_verdict = f"No verdict: {result.no_verdict or 'there was no validation dataset'}."
    verdict = result.comparison.sentence if result.comparison else no_verdict
    rows = [("" if place else "Phases", str(phase)) for place, phase in enumerate(summary.phases)]
    epochs, took = "1 epoch" if summary.epochs == 1 else f"{summary.epochs} epochs", duration(summary.seconds)
    rows.append(("Trained", f"{epochs} in {took}, on {summary.tokens_trained:,} sampled tokens"))
    if summary.ended_early is not None:
        rows.append(("Ended early", summary.ended_early))
    if summary.cost is not None:
        rows.append(("Cost", f"{summary.cost:.4g}, by finetuning.budget.prices"))
    if summary.failures:
        rows += _failed(summary, run_dir)
    rows.append(("Folder", f"{run_dir}, {bytes_text(folder_bytes(run_dir))}"))
    rows += _model(result, given)
    rows.append(("Next", shlex.join(["nat", "runs", "show", str(run_dir)])))
    return printable("\n\n".join([f"\n{verdict}", *explanation(summary.causes, run_dir), labelled(rows)]))


def _failed(summary: RunSummary, run_dir: Path) -> list[tuple[str, str]]:
    """Counts by cause, each with an error; a remedy for the most common one; and the file of tracebacks."""
    first = summary.failures[0]
    rows = [("Failed", f"{sum(each.count for each in summary.failures)} of {summary.rollouts:,} rollouts")]
    rows += [("", str(each)) for each in summary.failures]
    if first.cause in FAILURES:
        rows.append(("", f"→ {remedy_of(first.cause)}"))
    return [*rows, ("Tracebacks", str(run_dir / (summary.failures_file or "")))]


def _model(result: RunResult, given: FinetuneRunConfig) -> list[tuple[str, str]]:
    """The weights that `nat runs export` writes, and the commands that play and export them."""
    summary, served, best = result.summary, result.served_model, result.summary.best
    models = exported_models(result)
    if not models and served is None:
        return [] if best is None or best.epoch == summary.epochs else [("Best", best_text(best, result.run_dir))]
    rows = [("Model", str(path)) for path in models.values()] or [("Model", str(served))]
    if best is not None and best.epoch != summary.epochs:
        caveat = f"; {summary.best_caveat}" if summary.best_caveat else ""
        rows.append(("", f"{'the best' if best.checkpoint else 'the last; the best'}: {best}{caveat}"))
    overrides = [(f"llms.{llm}.model", str(path)) for llm, path in models.items()]
    overrides += [] if served is None else served.overrides
    rows.append(("Use it", use_command(overrides, result.question, given)))
    of_last = [] if best is None or best.checkpoint or best.epoch == summary.epochs else ["--checkpoint", "last"]
    places = [result.run_dir / LLMS / llm for llm in models] if len(models) > 1 else [result.run_dir][: len(models)]
    return rows + [("Export it", shlex.join(["nat", "runs", "export", str(place), *of_last])) for place in places]


def exported_models(result: RunResult) -> dict[str, Path]:
    """By the key of the LLM, its best weights if the run has kept them, else the last; empty if a server has them."""
    summary, run_dir, best = result.summary, result.run_dir, result.summary.best
    llms = result.trained_llms or ("<name>",)
    several, place, name = len(llms) > 1, summary.model, LAST_MODEL
    if best is not None and best.checkpoint is not None and best.epoch != summary.epochs:
        if summary.best_model is None:
            kept = [run_dir / each for each in (best.checkpoint, *best.others)]
            return {each.parent.parent.name if several else llms[0]: each for each in kept}
        place, name = summary.best_model, BEST_MODEL
    return {} if place is None else {llm: run_dir / place / llm / name if several else run_dir / place for llm in llms}


def use_command(overrides: Sequence[tuple[str, str]], question: str, given: FinetuneRunConfig) -> str:
    """The command that plays the same workflow with the trained model on one of the run's questions."""
    new = dict(overrides)
    kept = [(key, text) for key, text in given.override if key not in new and not key.startswith(_OF_TRAINING)]
    options = [word for pair in (*kept, *overrides) for word in ("-o", *pair)]
    return shlex.join(["nat", "run", f"--config_file={given.config_file}", *options, "--input", question or "…"])
