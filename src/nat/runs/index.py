"""The paths of the runs that this user has started, so that they are found wherever their output lies.

`$XDG_STATE_HOME/nat/runs/<run_id>` has the run's folder and the folder in which it was started. All else about a run is
in its journal; an entry whose run is gone means nothing.
"""

import logging
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nat.files import UNFINISHED, user_state, write_text
from nat.runs.journal import JOURNAL_NAME

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
