"""`nat export`: write a checkpoint as a plain model, even if its run is still running, failed or was killed."""

import json
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.options import json_option
from nat.errors import BackendError
from nat.plugins.local.export import export_checkpoint
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.wire.model_folder import MANIFEST, STATE
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, EXPORTS, NEWEST_CHECKPOINT


@click.command("export")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--checkpoint",
    help="Checkpoint to export: best, latest, or a folder's name.  [default: best if the run keeps one, else latest]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to write; only an earlier export is replaced.  [default: exports/<checkpoint> beside the checkpoints]",
)
@json_option
def export_command(folder: Path, checkpoint: str | None, output: Path | None, *, as_json: bool) -> None:
    """Export a checkpoint as a plain model. FOLDER is a run's folder, a backend's output folder, or a checkpoint."""
    source = found_checkpoint(folder, checkpoint)
    target = output or source.parent.parent / EXPORTS / source.name
    event_loop.run(export_checkpoint(source, target))
    click.echo(json.dumps({"checkpoint": str(source), "model": str(target)}) if as_json else f"{source} → {target}")


def found_checkpoint(folder: Path, name: str | None) -> Path:
    """The folder of the checkpoint to export.

    Raises:
        BackendError: there is no checkpoint of that name; the message lists the existing ones.

    """
    if name is None and any((folder / each).is_file() for each in (MANIFEST, STATE)):
        return folder.resolve()
    checkpoints = folder / CHECKPOINTS if (folder / CHECKPOINTS).is_dir() else folder
    wanted = [BEST_CHECKPOINT, NEWEST_CHECKPOINT] if name is None else [name]
    found = next((checkpoints / each for each in wanted if (checkpoints / each).is_dir()), None)
    if found is None or found.resolve().parent != checkpoints.resolve():
        names = sorted(path.name for path in checkpoints.iterdir() if path.is_dir())
        raise BackendError(
            f"{checkpoints} has no checkpoint {' or '.join(wanted)}; it has {', '.join(names) or 'none'}",
            hint="give the folder of a run that trained a `local` model, and one of its checkpoints with --checkpoint",
        )
    if name is None and found.name != BEST_CHECKPOINT:
        _check_that_no_other_is_better(folder)
    return found.resolve()


def _check_that_no_other_is_better(folder: Path) -> None:
    """Raise if the run's best model is the one that it started from, of which there is no checkpoint."""
    if not (folder / JOURNAL_NAME).is_file():
        return
    with Journal.open(folder, read_only=True) as journal:
        best = journal.best()
    if best is not None and best.epoch == 0:
        raise BackendError(
            f"the best model of this run is the one that it started from ({best}), which is not a checkpoint",
            hint=f"use --checkpoint {NEWEST_CHECKPOINT} to export the newest one anyway",
        )
