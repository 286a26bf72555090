"""Replace a file or a link whole: a reader sees the old one or the new one, never a half."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file of the owner's alone that replaces `path` if the block ends well, and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    """The whole of `path` becomes `text`."""
    with replacing(path) as file:
        file.write(text.encode())


def replace_link(path: Path, target: str) -> None:
    """Point the symbolic link `path` at `target`; a rename, so that the link is never absent."""
    temporary = _beside(path)
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A name in the same folder, since a rename across file systems is not atomic; hidden, and of this process only."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _sync_directory(folder: Path) -> None:
    """The rename itself lasts only when the folder is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
