"""Find the folders of runs on this machine, by path, id, the beginning of an id, or `latest`.

`latest` is the newest of the runs that were started in the current folder or lie in it. They are found wherever their
output lies: `$XDG_STATE_HOME/nat/runs/<run_id>` has a run's folder and the folder in which it was started.
"""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nat.errors import JournalError, did_you_mean
from nat.files import UNFINISHED, expanded, user_state, write_text
from nat.runs.folder import LATEST
from nat.runs.journal import JOURNAL_NAME, reading
from nat.runs.liveness import is_alive
from nat.runs.records import RunState

logger = logging.getLogger(__name__)


class StartedRun(BaseModel):
    """An entry; both paths are absolute."""

    run_dir: Path
    started_in: Path


def remember_run(run_dir: Path) -> None:
    """Add a run that starts now; a home that cannot be written is no reason to stop it."""
    entry = StartedRun(run_dir=run_dir.resolve(), started_in=Path.cwd())
    try:
        write_text(user_state() / "runs" / run_dir.name, entry.model_dump_json() + "\n")
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        logger.info("`latest` means this run only below its output folder: %s", error)


def started_in(run_dir: Path) -> Path | None:
    """The folder in which this user has started a run; None if that is not known, or gone."""
    found = (run.started_in for run in started_runs() if run.run_dir == run_dir.resolve())
    return next((folder for folder in found if folder.is_dir()), None)


def started_runs() -> list[StartedRun]:
    """The runs that are still there."""
    found = []
    with suppress(OSError, RuntimeError):
        entries = (user_state() / "runs").iterdir()
        for entry in (path for path in entries if not path.name.startswith(UNFINISHED)):
            with suppress(OSError, ValidationError):
                found.append(StartedRun.model_validate_json(entry.read_bytes()))
    return [run for run in found if (run.run_dir / JOURNAL_NAME).is_file()]


def started_here(run_dir: Path) -> bool:
    """True if this user has started the run, or gone on with it, on this machine."""
    return any(run.run_dir == run_dir.resolve() for run in started_runs())


RUNS_ROOT = Path(".tmp")
"""Where runs are looked for first: the default `finetuning.output_dir` and those of the examples lie below it."""

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
    return _newest_first(found)


def known_runs() -> tuple[list[Path], list[Path]]:
    """The user's runs that were started in the current folder or lie in it, and all others; the newest first."""
    cwd, here, elsewhere = Path.cwd(), {folder.resolve(): folder for folder in list_runs(RUNS_ROOT)}, []
    for run in started_runs():
        if cwd in (run.started_in, *run.run_dir.parents):
            here.setdefault(run.run_dir, run.run_dir)
        else:
            elsewhere.append(run.run_dir)
    return _newest_first(here.values()), _newest_first(elsewhere)


def newest_unfinished(root: Path | None = None) -> Path | None:
    """The newest run below `root`, or of this folder, that has not completed and that no process trains."""
    return next(filter(_waits, _runs_of(root)), None)


def newest_if_unfinished(root: Path | None = None, *, trained: bool = False) -> Path | None:
    """The newest run of all, if it is such a one, or with `trained` one that a process trains."""
    return next(filter(_is_unfinished if trained else _waits, _runs_of(root)[:1]), None)


def _runs_of(root: Path | None) -> list[Path]:
    return known_runs()[0] if root is None else list_runs(root)


def _waits(run_dir: Path) -> bool:
    """True if the run has not completed, and no process trains it."""
    return _is_unfinished(run_dir) and not is_alive(run_dir)


def _is_unfinished(run_dir: Path) -> bool:
    return state_of(run_dir) not in (None, RunState.COMPLETED)


def state_of(run_dir: Path) -> RunState | None:
    """The state that the run has recorded; None if its journal cannot be read."""
    with suppress(JournalError), reading(run_dir) as journal:
        return journal.info().state
    return None


def _newest_first(runs: Iterable[Path]) -> list[Path]:
    return sorted(runs, key=lambda folder: (folder.name, folder), reverse=True)


def find_run(name: str, root: Path | None = None) -> Path:
    """The folder of the run that `name` means: its path, its id, a beginning of it, or `latest`.

    It is looked for below `root`; without one, among all of the user's, and `latest` among those of this folder alone.

    Raises:
        JournalError: there is no such run, or there are several.

    """
    given = expanded(Path(name))
    if (given / JOURNAL_NAME).is_file():
        return given.resolve() if given.is_symlink() or given.name in {"", ".."} else given
    here, elsewhere = known_runs() if root is None else (list_runs(root), [])
    runs = here + elsewhere
    if name == LATEST:
        if not here:
            raise _not_found(given, runs, root)
        return here[0]
    found = [run for run in runs if run.name == name] or [run for run in runs if name and run.name.startswith(name)]
    if len(found) > 1:
        raise JournalError(
            f"{name!r} begins the id of {len(found)} runs: {_listed(found)}",
            hint="give more of the id, or the path of the run's folder",
        )
    if not found:
        raise _not_found(given, runs, root)
    return found[0]


def _not_found(given: Path, runs: list[Path], root: Path | None) -> JournalError:
    if given.is_dir() and (below := list_runs(given)):
        return JournalError(
            f"{given} is not a run's folder, but it has {_listed(below)}", hint="give one of these folders"
        )
    seen = f"{given} has no {JOURNAL_NAME}" if given.is_dir() else f"no run is called {str(given)!r}"
    if str(given) == LATEST:
        seen = "latest: no run was started in this folder" if root is None else "there is no newest run"
    place = f"below {RUNS_ROOT}, and of those that you started," if root is None else f"below {root}"
    there = f"{place} there {'is' if len(runs) == 1 else 'are'} {_listed(runs) if runs else 'none'}"
    return JournalError(
        f"{seen}; {there}.{did_you_mean(given.name, [run.name for run in runs])}",
        hint="give a run's folder, its id or the beginning of one, or `latest`; --output_dir names another place to "
        "look in, the `finetuning.output_dir` of the run",
    )


def _listed(runs: list[Path]) -> str:
    names = ", ".join(map(str, runs[:_LISTED]))
    return names if len(runs) <= _LISTED else f"{names} and {len(runs) - _LISTED} more"
