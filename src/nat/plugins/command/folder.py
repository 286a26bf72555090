"""The folder of one rollout: the files that the program starts with, and those that it writes.

work/    working folder of the program
home/    its HOME, so that the user's settings have no effect
tmp/     its TMPDIR
stdin, stdout, stderr
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from nat.secrets import excerpt, redact

MAX_READ_BYTES = 32 * 2**20
"""Limit for one file of a program."""
_TAIL_BYTES = 2000
_LONGEST_NAME = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class MissingOutput(ValueError):
    """A file that the program should have written is missing or invalid."""


@dataclass(frozen=True)
class RolloutFolder:
    """Where one program runs."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def scratch(self) -> Path:
        return self.root / "tmp"

    @property
    def stdin(self) -> Path:
        return self.root / "stdin"

    @property
    def stdout(self) -> Path:
        return self.root / "stdout"

    @property
    def stderr(self) -> Path:
        return self.root / "stderr"

    def stderr_tail(self) -> str:
        """The end of the program's stderr."""
        try:
            with opened_regular(self.root, (self.stderr.name,)) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                return file.read(_TAIL_BYTES).decode(errors="replace").strip()
        except MissingOutput as error:
            return str(error)

    def stdout_text(self) -> str:
        """The program's stdout."""
        return read_text(self.root, (self.stdout.name,))

    def read(self, name: str) -> str:
        """A file in `work`."""
        return read_text(self.root, (self.work.name, *PurePosixPath(name).parts))

    def read_number(self, name: str) -> float:
        """The number in a file; MissingOutput if it has no single number."""
        text = self.read(name).strip()
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not abs(number) < float("inf"):
            raise MissingOutput(f"the file {name!r} holds {excerpt(repr(text), 100)}, which is not one number")
        return number


@asynccontextmanager
async def opened_folder(start: Path | None, *, kept_in: Path | None, name: str) -> AsyncIterator[RolloutFolder]:
    """A new folder with a copy of `start`; deleted at the end, or kept in `kept_in` under its name."""
    folder = await asyncio.to_thread(_make, start, kept_in, name)
    try:
        yield folder
    finally:
        gone = [folder.root] if kept_in is None else [folder.home, folder.scratch]
        for path in gone:
            await asyncio.to_thread(remove_tree, path)
        if kept_in is not None:
            await asyncio.to_thread(_redact, folder)


def as_text(value: Any) -> str:
    """A text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@contextmanager
def opened_regular(root: Path, parts: Sequence[str]) -> Iterator[BinaryIO]:
    """Open a regular file below `root`, without following links.

    A program may create a FIFO, a device or a link under the name: opening it must not block, nor read another file.

    Raises:
        MissingOutput: there is no such file.

    """
    name = "/".join(parts[1:] or parts)
    try:
        with ExitStack() as folders:
            here = os.open(root, _FOLDER)
            folders.callback(os.close, here)
            for part in parts[:-1]:
                here = os.open(part, _FOLDER, dir_fd=here)
                folders.callback(os.close, here)
            mode = os.stat(parts[-1], dir_fd=here, follow_symlinks=False).st_mode
            descriptor = os.open(parts[-1], _FILE, dir_fd=here) if stat.S_ISREG(mode) else None
    except OSError as error:
        raise MissingOutput(f"the program wrote no file {name!r}: {error.strerror}") from error
    if descriptor is None:
        raise MissingOutput(
            f"the program wrote no file {name!r}, but {_KINDS.get(stat.S_IFMT(mode), 'something else')}"
        )
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise MissingOutput(f"the program wrote no file {name!r}: it was changed as it was read")
        yield file


def read_text(root: Path, parts: Sequence[str]) -> str:
    """The text of such a file; MissingOutput if it is too large."""
    with opened_regular(root, parts) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(MAX_READ_BYTES + 1) if size <= MAX_READ_BYTES else b""
    if max(size, len(data)) > MAX_READ_BYTES:
        raise MissingOutput(f"{parts[-1]} is larger than {MAX_READ_BYTES} bytes")
    return data.decode(errors="replace")


def _redact(folder: RolloutFolder) -> None:
    """Remove known secrets from the recorded input and output in a kept folder; other files belong to the program."""
    for path in (folder.stdin, folder.stdout, folder.stderr):
        with suppress(MissingOutput, OSError):
            text = read_text(folder.root, (path.name,))
            if (clean := redact(text)) != text:
                path.unlink()
                path.write_text(clean, encoding="utf-8")


def _plain(name: str) -> str:
    """A valid folder name: without separators, and short enough for the file system."""
    return re.sub(r"[^\w.#-]+", "_", name).strip(".").encode()[:_LONGEST_NAME].decode(errors="ignore")


def _make(start: Path | None, kept_in: Path | None, name: str) -> RolloutFolder:
    if kept_in is not None:
        kept_in.mkdir(parents=True, exist_ok=True)
    prefix = "nat-command-" if kept_in is None else f"{_plain(name)}-"
    folder = RolloutFolder(Path(tempfile.mkdtemp(prefix=prefix, dir=kept_in)).absolute())
    for path in (folder.home, folder.scratch):
        path.mkdir()
    if start is None:
        folder.work.mkdir()
    else:
        shutil.copytree(start, folder.work, symlinks=True)
    return folder


def remove_tree(root: Path) -> None:
    """Delete a folder of any depth and with any permissions; links are not followed, errors are ignored.

    `shutil.rmtree` recurses and holds a descriptor per level, so a thousand nested folders end it; and a path to the
    deepest one may be too long for the system. So each folder is moved to the top before it is emptied. Nothing is
    created, since the disk may be full. No program may be changing the folder meanwhile.
    """
    top = f"{root.name}-{secrets.token_hex(8)}"
    names = (root.with_name(f"{top}-{number}") for number in count())
    folders = _move_folders([root], names)
    while folders:
        folder = folders.pop()
        with suppress(OSError):
            folders += _move_folders(folder.iterdir(), names)
            folder.rmdir()


def _move_folders(paths: Iterable[Path], names: Iterator[Path]) -> list[Path]:
    """Move folders to new names, and delete everything else."""
    folders = []
    for path in paths:
        with suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                path.chmod(0o700)
                folders.append(path.rename(next(names)))
    return folders
