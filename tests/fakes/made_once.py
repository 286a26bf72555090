"""Folders that take long to make: the first process that needs one makes it, and the others wait."""

import fcntl
from collections.abc import Callable
from pathlib import Path

from nat.files import replacing_folder


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder, which `make` fills if it is missing; other processes wait meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.busy").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not folder.exists():
            with replacing_folder(folder) as draft:
                make(draft)
    return folder
