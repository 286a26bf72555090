"""`nat export`: make a plain model of a checkpoint, whether its run has ended, failed, was killed or still goes on."""

import json
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.config_options import json_option
from nat.errors import BackendError
from nat.plugins.local.export import export_checkpoint
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.wire.manifest import MANIFEST, STATE
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, EXPORTS, NEWEST_CHECKPOINT


@click.command("export")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--checkpoint",
    help="Which one: best, latest, or the name of its folder.  [default: best if the run keeps one, else latest]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to write; only an earlier export is replaced.  [default: exports/<checkpoint> beside the checkpoints]",
)
@json_option
def export_command(folder: Path, checkpoint: str | None, output: Path | None, *, as_json: bool) -> None:
    """Make a plain model of a checkpoint in FOLDER: that of a run, of a backend's output, or the checkpoint's own."""
    source = found_checkpoint(folder, checkpoint)
    target = output or source.parent.parent / EXPORTS / source.name
    event_loop.run(export_checkpoint(source, target))
    click.echo(json.dumps({"checkpoint": str(source), "model": str(target)}) if as_json else f"{source} → {target}")


def found_checkpoint(folder: Path, name: str | None) -> Path:
    """The folder of the checkpoint that is meant.

    Raises:
        BackendError: there is none of that name, with those that there are.

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
            hint="name the folder of a run of a `local` model, and with --checkpoint one that it has",
        )
    if name is None and found.name != BEST_CHECKPOINT:
        _check_that_no_other_is_better(folder)
    return found.resolve()


def _check_that_no_other_is_better(folder: Path) -> None:
    """No checkpoint is the best one of a run whose best model is that from which it started."""
    if not (folder / JOURNAL_NAME).is_file():
        return
    with Journal.open(folder, read_only=True) as journal:
        best = journal.best()
    if best is not None and best.epoch == 0:
        raise BackendError(
            f"the best model of this run is the one that it started from ({best}), of which it has no checkpoint",
            hint=f"--checkpoint {NEWEST_CHECKPOINT} exports the newest one all the same",
        )
