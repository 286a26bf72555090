"""Find the folders of runs on this machine, by path, id, the beginning of an id, or `latest`. Reads names only."""

import os
from pathlib import Path

from nat.errors import JournalError, did_you_mean
from nat.runs.folder import LATEST
from nat.runs.journal import JOURNAL_NAME

RUNS_ROOT = Path(".tmp")
"""Where runs are looked for: the default `finetuning.output_dir` and those of the examples lie below it."""

_DEPTH = 3
"""Folders between the root and a journal: `.tmp/nat/finetuning/<run_id>`."""
_LISTED = 5


def list_runs(root: Path = RUNS_ROOT) -> list[Path]:
    """The folders of the runs up to three levels below `root`, the newest first; links are not followed."""
    found = []
    for name, folders, files in os.walk(root):
        folder = Path(name)
        if JOURNAL_NAME in files and (folder / JOURNAL_NAME).is_file():
            found.append(folder)
        if JOURNAL_NAME in files or len(folder.relative_to(root).parts) == _DEPTH:
            folders.clear()
    return sorted(found, key=lambda folder: (folder.name, folder), reverse=True)


def find_run(name: str, root: Path = RUNS_ROOT) -> Path:
    """The folder of the run that `name` means: its path, or below `root` its id, a beginning of it, or `latest`.

    Raises:
        JournalError: there is no such run, or there are several.

    """
    given = Path(name)
    if (given / JOURNAL_NAME).is_file():
        return given.resolve() if given.is_symlink() or given.name in {"", ".."} else given
    runs = list_runs(root)
    if name == LATEST and runs:
        return runs[0]
    found = [run for run in runs if run.name == name] or [run for run in runs if name and run.name.startswith(name)]
    if len(found) > 1:
        raise JournalError(
            f"{name!r} begins the id of {len(found)} runs: {_listed(found)}",
            hint="give more of the id, or the path of the run's folder",
        )
    if not found:
        raise _not_found(given, runs, root)
    return found[0]


def _not_found(given: Path, runs: list[Path], root: Path) -> JournalError:
    if given.is_dir() and (below := list_runs(given)):
        return JournalError(
            f"{given} is not a run's folder, but it has {_listed(below)}", hint="give one of these folders"
        )
    seen = f"{given} has no {JOURNAL_NAME}" if given.is_dir() else f"no run is called {str(given)!r}"
    there = f"below {root} there {'is' if len(runs) == 1 else 'are'} {_listed(runs) if runs else 'none'}"
    return JournalError(
        f"{seen}; {there}.{did_you_mean(given.name, [run.name for run in runs])}",
        hint="give a run's folder, its id or the beginning of one, or `latest`; --output_dir names another place to "
        "look in, the `finetuning.output_dir` of the run",
    )


def _listed(runs: list[Path]) -> str:
    names = ", ".join(map(str, runs[:_LISTED]))
    return names if len(runs) <= _LISTED else f"{names} and {len(runs) - _LISTED} more"
