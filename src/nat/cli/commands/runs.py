"""`nat runs`: list, show and compare runs, write reports, export models and rollouts, send to trackers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from pydantic import BaseModel

from nat.cli.commands.export import export_command
from nat.cli.commands.imitate import imitate_command
from nat.cli.commands.options import UserPathOption, json_option, runs_root_option
from nat.cli.commands.rollouts import rollouts_command
from nat.cli.commands.send import send_command
from nat.cli.commands.serve import check_installed
from nat.files import folder_bytes, write_text
from nat.reports.comparison import compare_runs, comparison_page
from nat.reports.overview import list_page, overviews
from nat.reports.rollouts import (
    PlayedRollouts,
    RolloutChoice,
    check_played,
    chosen,
    rollouts_page,
    rollouts_record,
    whole,
)
from nat.reports.run_page import run_page, run_report
from nat.reports.tokens import row_text, tokenizer_of
from nat.runs.disk import can_be_pruned, delete_run, prune_run
from nat.runs.find import find_run, known_runs, list_runs
from nat.runs.journal import Journal, reading
from nat.runs.records import Phase
from nat.sizing.memory import bytes_text


@click.group("runs")
def runs_command() -> None:
    """Look at runs, compare them, export models and rollouts, send them to trackers, free their disk.

    `list`, `show` and `compare` write nothing.

    RUN is a run's folder, its id, the beginning of an id that no other run has, or `latest`.
    """


runs_command.add_command(export_command)
runs_command.add_command(imitate_command)
runs_command.add_command(rollouts_command)
runs_command.add_command(send_command)


@runs_command.command("list")
@runs_root_option
@json_option
def list_command(output_dir: Path | None, *, as_json: bool) -> None:
    """List the runs of the current folder, the newest first; without any, all that you started."""
    here, elsewhere = known_runs() if output_dir is None else (list_runs(output_dir), [])
    runs = overviews(here or elsewhere)
    if as_json:
        click.echo(json.dumps({"runs": [_plain(run) for run in runs]}))
    else:
        click.echo(list_page(runs, output_dir))


@runs_command.command("show")
@click.argument("run")
@click.option("--epoch", type=click.IntRange(min=1), help="Show the training rollouts of this epoch, counted from 1.")
@click.option(
    "--validation", type=click.IntRange(min=0), help="Show the held-out rollouts after this epoch; 0: before training."
)
@click.option("--worst", type=click.IntRange(min=0), default=0, help="As conversations: so many of the lowest reward.")
@click.option("--best", type=click.IntRange(min=0), default=0, help="As conversations: so many of the highest reward.")
@click.option("--failed", type=click.IntRange(min=0), default=0, help="As conversations: so many without a reward.")
@click.option("--example", "examples", multiple=True, help="As conversations: those of this example; may be repeated.")
@click.option("--tokens", is_flag=True, help="Also show the text of each training row, with the sampled tokens marked.")
@runs_root_option
@json_option
def show_command(
    run: str,
    epoch: int | None,
    validation: int | None,
    examples: tuple[str, ...],
    output_dir: Path | None,
    *,
    worst: int,
    best: int,
    failed: int,
    tokens: bool,
    as_json: bool,
) -> None:
    """Show a run, or with --epoch or --validation its rollouts."""
    choice = RolloutChoice(worst=worst, best=best, failed=failed, examples=examples)
    if epoch is not None and validation is not None:
        raise click.UsageError("--epoch and --validation name different rollouts; give one of them.")
    if epoch is None and validation is None and (choice.any or tokens):
        raise click.UsageError(
            "--worst, --best, --failed, --example and --tokens are about the rollouts of --epoch N or --validation N."
        )
    if tokens and not (choice.any or as_json):
        raise click.UsageError("--tokens needs the rollouts to show: --worst, --best, --failed or --example.")
    with reading(find_run(run, output_dir)) as journal:
        if epoch is None and validation is None:
            report = run_report(journal)
            click.echo(json.dumps(_plain(report)) if as_json else run_page(report))
            return
        rollouts = _rollouts(journal, epoch, validation, choice)
        tokenizer = tokenizer_of(journal) if tokens else None
        text = None if tokenizer is None else lambda row: row_text(row, tokenizer)
        page = (
            json.dumps(rollouts_record(rollouts, text))
            if as_json
            else rollouts_page(rollouts, whole=choice.any, row_text=text)
        )
    click.echo(page)


def _rollouts(journal: Journal, epoch: int | None, validation: int | None, choice: RolloutChoice) -> PlayedRollouts:
    phase, number = (Phase.VALIDATION, validation or 0) if epoch is None else (Phase.TRAIN, epoch - 1)
    check_played(journal, phase, number)
    outcomes, records = journal.outcomes(phase, number), journal.rollouts(phase, number)
    if choice.any:
        records = whole(journal, phase, number, chosen(outcomes, choice))
    return PlayedRollouts(journal.info().run_id, phase, number, outcomes, records)


@runs_command.command("compare")
@click.argument("a")
@click.argument("b")
@runs_root_option
@json_option
def compare_command(a: str, b: str, output_dir: Path | None, *, as_json: bool) -> None:
    """Compare two runs: settings that differ, held-out scores by example, rewards in training."""
    with reading(find_run(a, output_dir)) as first, reading(find_run(b, output_dir)) as second:
        compared = compare_runs(first, second)
    click.echo(json.dumps(_plain(compared)) if as_json else comparison_page(compared))


@runs_command.command("report")
@click.argument("run")
@click.option(
    "--output",
    type=UserPathOption(dir_okay=False, path_type=Path),
    help="The file to write.  [default: the name of the run's folder with .html, in the current folder]",
)
@runs_root_option
def report_command(run: str, output: Path | None, output_dir: Path | None) -> None:
    """Write a run as one HTML file to send: its pictures, findings and some rollouts. It loads nothing else."""
    check_installed("nat runs report", "jinja2", extra="ui")
    from nat.dashboard.report_file import report_html

    folder = find_run(run, output_dir)
    with reading(folder) as journal:
        file = output or Path(f"{folder.resolve().name}.html")
        write_text(file, report_html(journal))
    click.echo(f"Wrote {file}")


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@runs_command.command("delete")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@yes_option
@runs_root_option
def delete_command(runs: tuple[str, ...], output_dir: Path | None, *, yes: bool) -> None:
    """Delete runs: their records, rollouts, checkpoints and models."""
    _freed([find_run(run, output_dir) for run in runs], delete_run, "Delete", yes=yes)


@runs_command.command("prune")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@yes_option
@runs_root_option
def prune_command(runs: tuple[str, ...], output_dir: Path | None, *, yes: bool) -> None:
    """Delete what completed runs need only to train on: optimizer states, other checkpoints, batches.

    Their records and rollouts stay, and the best and the last weights. Without RUN, all completed runs of this folder
    are pruned.
    """
    known = list_runs(output_dir) if output_dir else known_runs()[0]
    folders = [find_run(run, output_dir) for run in runs] or list(filter(can_be_pruned, known))
    _freed(folders, prune_run, "Prune", yes=yes)


def _freed(folders: Sequence[Path], free: Callable[[Path], None], verb: str, *, yes: bool) -> None:
    """Ask, free the disk, and say how much."""
    folders = list(dict.fromkeys(folders))
    for folder in folders:
        click.echo(f"{folder}, {bytes_text(folder_bytes(folder))}")
    if yes or click.confirm(f"{verb} {len(folders)} run{'s' * (len(folders) != 1)}?"):
        before = sum(map(folder_bytes, folders))
        for folder in folders:
            free(folder)
        click.echo(f"Freed {bytes_text(before - sum(map(folder_bytes, folders)))}.")


def _plain(record: BaseModel) -> object:
    """The record's JSON; written with escapes, so that no terminal obeys it."""
    return json.loads(record.model_dump_json())
