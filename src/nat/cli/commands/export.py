"""`nat runs export`: write a checkpoint as a plain model.

It works for runs that are still running, failed or were killed.
"""

import json
from pathlib import Path
from typing import get_args

import click

from nat.cli import event_loop
from nat.cli.commands.options import UserPathOption, json_option, runs_root_option
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.errors import BackendError
from nat.plugins.local.export import export_checkpoint
from nat.runs.find import find_run
from nat.runs.journal import JOURNAL_NAME, reading
from nat.runs.records import BestEpoch
from nat.wire.model_folder import MANIFEST, STATE, ExportFormat
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, EXPORTS, LLMS, NEWEST_CHECKPOINT

_LAST = "last"
"""Another word for the newest checkpoint."""


@click.command("export")
@click.argument("run")
@click.option(
    "--checkpoint",
    help="Checkpoint to export: best, last, or a folder's name.  [default: best if the run keeps one, else last]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(ExportFormat)),
    default="hf",
    show_default=True,
    help="hf: a whole model, with a LoRA adapter merged; peft: the adapter alone; gguf: the whole model in one file, "
    "for llama.cpp, Ollama and LM Studio.",
)
@click.option(
    "--output",
    type=UserPathOption(path_type=Path),
    help="Folder to write, with gguf a file; only an exported folder is replaced.  "
    "[default: exports/<checkpoint> beside the checkpoints]",
)
@runs_root_option
@json_option
def export_command(
    run: str,
    checkpoint: str | None,
    form: ExportFormat,
    output: Path | None,
    *,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Export a checkpoint as a plain model.

    RUN is a run's id or the beginning of one, `latest`, or the folder of a run, a backend's output or a checkpoint.
    """
    folder = Path(run) if Path(run).is_dir() else find_run(run, output_dir)
    source = found_checkpoint(folder, checkpoint)
    name = source.name + {"hf": "", "peft": "-peft", "gguf": ".gguf"}[form]
    target = output or source.parent.parent / EXPORTS / name
    with shown_steps() as steps:
        steps.begin(f"exporting {source}", after=SLOW_SECONDS)
        event_loop.run(export_checkpoint(source, target, form))
    record = {"checkpoint": str(source), "model": str(target), "format": form}
    click.echo(json.dumps(record) if as_json else f"{source} → {target}")


def found_checkpoint(folder: Path, name: str | None) -> Path:
    """The folder of the checkpoint to export.

    Raises:
        BackendError: there is no checkpoint of that name; the message lists the existing ones.

    """
    if name is None and _is_checkpoint(folder):
        return folder.resolve()
    checkpoints = folder / CHECKPOINTS if (folder / CHECKPOINTS).is_dir() else folder
    name = NEWEST_CHECKPOINT if name == _LAST else name
    wanted = [BEST_CHECKPOINT, NEWEST_CHECKPOINT] if name is None else [name]
    found = next((checkpoints / each for each in wanted if (checkpoints / each).is_dir()), None)
    if found is None and (models := sorted((folder / LLMS).glob("*"))):
        raise BackendError(
            f"{folder} has trained several models: {', '.join(path.name for path in models)}",
            hint=f"export each by its own folder: `nat runs export {models[0]}`",
        )
    if found is None or found.resolve().parent != checkpoints.resolve():
        if name in {None, BEST_CHECKPOINT}:
            _check_that_no_other_is_better(folder)
        names = sorted(path.name for path in checkpoints.iterdir() if _is_checkpoint(path))
        if not names:
            raise BackendError(
                f"{checkpoints} has no checkpoint",
                hint="a run writes one after an update (`save_every`); name one that trained a `local` model",
            )
        raise BackendError(
            f"{checkpoints} has no checkpoint {' or '.join(wanted)}; it has {', '.join(names)}",
            hint="name one of them with --checkpoint",
        )
    if name is None and found.name != BEST_CHECKPOINT:
        _check_that_no_other_is_better(folder)
    return found.resolve()


def _is_checkpoint(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (MANIFEST, STATE))


def _check_that_no_other_is_better(folder: Path) -> None:
    """Raise if the run's best model is the one that it started from, of which there is no checkpoint."""
    if not (folder / JOURNAL_NAME).is_file():
        return
    with reading(folder) as journal:
        best = journal.find(BestEpoch)
    if best is not None and best.epoch == 0:
        raise BackendError(
            f"the best model of this run is the one that it started from ({best}), which is not a checkpoint",
            hint=f"use --checkpoint {_LAST} to export the newest one anyway",
        )
