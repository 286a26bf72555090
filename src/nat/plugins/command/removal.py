"""Delete what a program leaves, however deep it is and whatever rights its folders have.

`shutil.rmtree` recurses and holds a descriptor for each level, so that a thousand folders in each other end it; a path
to the deepest of them may be longer than the system takes. So each folder is moved to the top before it is emptied.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path


def remove_tree(root: Path) -> None:
    """Delete a folder, or what stands in its place, but nothing that a link leads to; what cannot be deleted stays.

    No program may run any more that could change it. Nothing new is made, since the disk may be full.
    """
    top = f"{root.name}-{secrets.token_hex(8)}"
    names = (root.with_name(f"{top}-{number}") for number in count())
    folders = _taken([root], names)
    while folders:
        folder = folders.pop()
        with suppress(OSError):
            folders += _taken(folder.iterdir(), names)
            folder.rmdir()


def _taken(paths: Iterable[Path], names: Iterator[Path]) -> list[Path]:
    """The folders among them, each under a new name; all else is deleted."""
    folders = []
    for path in paths:
        with suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                path.chmod(0o700)
                folders.append(path.rename(next(names)))
    return folders
