"""Whether a run's folder has all of its files itself: a run that goes on writes to them, and deletes some of them.

A folder of others may have a link in place of a file, and what is written to that file would be lost elsewhere.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nat.errors import JournalError, describe_error
from nat.runs.tracker import FOLDER as TRACKERS

_SHOWN = 3


def check_own_files(run_dir: Path) -> None:
    """Refuse to write into a folder whose entries are not its own.

    Raises:
        JournalError: a link leads out of the folder, or an entry is a pipe or a device.

    """
    if found := sorted(_foreign(run_dir)):
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise JournalError(
            f"the run {run_dir.name} would write to {', '.join(found[:_SHOWN])}{more}",
            hint="if you trust the run, put what it leads to in the place of each link; otherwise delete the folder",
        )


def _foreign(run_dir: Path) -> Iterator[str]:
    root = run_dir.resolve()
    for place, folders, files in os.walk(run_dir):
        for name in (*folders, *files):
            path = Path(place, name)
            if (why := _why_foreign(path, root)) is not None:
                yield f"{path.relative_to(run_dir)}, which is {why}"
        if Path(place).parent == run_dir / TRACKERS:  # trackers keep files in their own ways, some of them as links
            folders.clear()


def _why_foreign(path: Path, root: Path) -> str | None:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return None if path.resolve().is_relative_to(root) else "a link out of its folder"
    except FileNotFoundError:  # another process has removed it
        return None
    except (OSError, RuntimeError) as error:  # before Python 3.13, RuntimeError is a link to itself
        return f"of no use: {describe_error(error)}"
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "neither a file nor a folder"
