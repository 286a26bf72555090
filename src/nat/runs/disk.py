"""Free the disk that runs take: delete whole ones, or what a completed one needs no more."""

from pathlib import Path

from nat.errors import JournalError
from nat.files import remove_folder, replace_link
from nat.runs.find import state_of
from nat.runs.folder import LATEST, link_guide_names
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.runs.liveness import is_alive
from nat.runs.records import RunState
from nat.wire.model_folder import forget_optimizer
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, LLMS, NEWEST_CHECKPOINT


def delete_run(run_dir: Path) -> None:
    """Delete a run's folder; the links beside it lead to the newest run that is left there, or go.

    Raises:
        JournalError: the run is going on.

    """
    if is_alive(run_dir):
        raise JournalError(f"the run {run_dir.name} is going on", hint="stop it first, or wait for its end")
    output_dir = run_dir.absolute().parent
    remove_folder(run_dir)
    latest = output_dir / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()
        for name in sorted(path.parent.name for path in output_dir.glob(f"*/{JOURNAL_NAME}"))[-1:]:
            replace_link(latest, name)
    link_guide_names(output_dir)


def can_be_pruned(run_dir: Path) -> bool:
    """True if the run has completed, and nothing trains it on."""
    return state_of(run_dir) is RunState.COMPLETED and not is_alive(run_dir)


def prune_run(run_dir: Path) -> None:
    """Delete what a completed run could only train on with; its records, best and last weights stay.

    Raises:
        JournalError: the run has not completed.

    """
    if not can_be_pruned(run_dir):
        raise JournalError(
            f"the run {run_dir.name} has not completed, and may go on from what it has",
            hint=f"go on with it, or delete it: nat runs delete {run_dir}",
        )
    for place in (run_dir, *(run_dir / LLMS).glob("*")):
        checkpoints = place / CHECKPOINTS
        kept = {(checkpoints / name).resolve() for name in (NEWEST_CHECKPOINT, BEST_CHECKPOINT)}
        for folder in [path for path in checkpoints.glob("*") if not path.is_symlink()]:
            if folder.resolve() in kept:
                forget_optimizer(folder)
            else:
                remove_folder(folder)
    with Journal.open(run_dir) as journal:
        journal.prune()
