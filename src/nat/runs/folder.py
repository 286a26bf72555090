"""Where a run's files lie: `<output_dir>/<run_id>/`, with `latest` beside it.

    <output_dir>/
    ├── 20260314-092653-5a1f/      one folder per run; names sort by time
    ├── latest -> 20260314-…       the newest run, switched by one rename
    └── reward_plot.png -> latest/reward_plot.png, and so on for the file names of the guide

A file or folder of the user's is never replaced: where one is in the way, the link is left out with a warning.
"""

import logging
import re
from datetime import datetime
from pathlib import Path

from nat.errors import JournalError
from nat.files import replace_link

logger = logging.getLogger(__name__)

LATEST = "latest"
GUIDE_NAMES = (
    "training_metrics.jsonl",
    "reward_history.json",
    "validation_history.json",
    "curriculum_state.json",
    "reward_plot.png",
    "summary.json",
)
"""The files that the guide promises in `output_dir` itself, and the summary."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def new_run_id(now: datetime, suffix: str) -> str:
    """A name that sorts by time to the second; `suffix` keeps runs of the same second apart."""
    return checked_name(f"{now:%Y%m%d-%H%M%S}-{suffix}")


def checked_name(name: str) -> str:
    """`name` itself, if it can be a folder's name and cannot lead out of its parent."""
    if _SAFE_NAME.fullmatch(name) is None or name == LATEST:
        raise JournalError(
            f"{name!r} cannot name a run's folder",
            hint="Use letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 100; not 'latest'.",
        )
    return name


def create_run_folder(output_dir: Path, run_id: str) -> Path:
    """Make the run's folder, which must be new and is its owner's alone, and point `latest` at it."""
    run_dir = output_dir / checked_name(run_id)
    try:
        run_dir.mkdir(parents=True, mode=0o700)
    except FileExistsError as error:
        raise JournalError(f"{run_dir} exists already", hint="Give the new run another id.") from error
    _link(output_dir / LATEST, run_id)
    return run_dir


def link_guide_names(output_dir: Path) -> None:
    """Let each guide name lead to the latest run's file; our link to a file that this run lacks goes away."""
    for name in GUIDE_NAMES:
        path = output_dir / name
        target = f"{LATEST}/{name}"
        if (output_dir / target).exists():
            _link(path, target)
        elif path.is_symlink() and str(path.readlink()) == target:
            path.unlink()


def _link(path: Path, target: str) -> None:
    if path.exists() and not path.is_symlink():
        logger.warning("%s is not a link of ours and stays as it is; this run's file is %s", path, path.parent / target)
        return
    try:
        replace_link(path, target)
    except OSError as error:  # a file system or user without symbolic links; the run's folder is complete without
        logger.warning("cannot link %s to %s: %s", path, target, error)
