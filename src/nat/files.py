"""Replace files, links and folders atomically, and explain errors of the file system.

A reader sees the old version or the new one, never a partial one, even after a crash of the machine.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, NamedTuple, TypeVar

from pydantic import AfterValidator

P = TypeVar("P", str, Path)


def expanded(path: P) -> P:
    """The path with the user's home folder in place of `~`."""
    return type(path)(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises for a user that there is not


UserPath = Annotated[Path, AfterValidator(expanded)]
"""A path that a user writes, in a YAML or on a command line."""
UserPathText = Annotated[str, AfterValidator(expanded)]
"""The same, where it stays text."""

UNFINISHED = ".unfinished-"
"""Prefix of files and folders that are being written; after a crash they can be deleted."""
REPLACED = f"{UNFINISHED}replaced-"
"""Prefix of a folder that is being replaced by a new one of the same name."""
REMOVED = f"{UNFINISHED}removed-"
"""Prefix of a folder that is being deleted."""

_DISK_FULL = "free some space there, or write to another disk"
_NOT_ALLOWED = "choose a folder that you may write to, or change its owner or mode"
_REMEDIES = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EFBIG: "raise the limit on file size (ulimit -f)",
    errno.EROFS: _NOT_ALLOWED,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENOTDIR: "a file is in the way of a folder: choose another folder",
    errno.EISDIR: "a folder is in the way of a file: move it away",
    errno.EIO: "read the system's log; a limit on file size (ulimit -f) can cause this error, too",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower eval.general.max_concurrency",
    errno.ENFILE: "close other programs, or raise the system's limit of open files",
    errno.ENAMETOOLONG: "use a shorter name",
}
_IN_RUST = re.compile(r"\(os error (\d+)\)")
"""The end of error messages from safetensors and tokenizers."""


_TAIL_BYTES = 16_000
"""Of a log, for an error message."""


def private_log(path: Path) -> IO[bytes]:
    """Open a log for appending, readable by its owner only."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def log_tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, indented, for an error message; a log may have gigabytes, and lines without end."""
    text = ""
    if path.exists():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    return last_lines(text, lines)


def last_lines(log: str, lines: int) -> str:
    """The last lines of a log's text, indented, for an error message."""
    return "\n".join(f"    {line}" for line in log.splitlines()[-lines:]) or "    (the log is empty)"


def user_cache() -> Path:
    """The folder of what can be made again, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nat"


def user_state() -> Path:
    """The folder of what is remembered between commands, which may not exist yet."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "nat"


def shown(path: Path) -> Path:
    """The path as one types it in the working directory, in which an agent may have left the process."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):  # it is elsewhere, or the directory was deleted
        return path


def folder_bytes(folder: Path) -> int:
    """The sizes of all files below the folder, without what links name."""
    sizes = []
    for place, _, names in os.walk(folder):
        with suppress(FileNotFoundError):  # another process works there
            sizes += [os.lstat(Path(place, name)).st_size for name in names]
    return sum(sizes)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file, mode 0600, that replaces `path` if the block succeeds and is deleted otherwise."""
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
    _sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by a file that holds `text`."""
    with replacing(path) as file:
        file.write(text.encode())


def replace_link(path: Path, target: str) -> None:
    """Point the symbolic link `path` at `target`; a rename, so that the link is never absent."""
    temporary = _beside(path)
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


@contextmanager
def replacing_folder(target: Path, *, may_replace: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """Create an empty folder that becomes `target`, in place of an older one, if the block succeeds.

    Raises:
        FileExistsError: an existing target may not be replaced; it is left as it was.

    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _check_replaceable(target, may_replace)
    draft = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=target.parent))
    try:
        yield draft
        for path in [*draft.rglob("*"), draft]:
            _sync(path)
        _check_replaceable(target, may_replace)
        replaced = _moved_away(target, REPLACED) if os.path.lexists(target) else None
        draft.rename(target)  # fails if another process has created the target since
        _sync(target.parent)
        if replaced is not None:
            _delete(replaced)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def remove_folder(target: Path) -> None:
    """Delete a folder, if it exists; its name is free at once."""
    with suppress(FileNotFoundError):
        _delete(_moved_away(target, REMOVED))


def remove_unfinished(folder: Path) -> None:
    """Delete unfinished files and folders after a crash; no other process may be writing to the folder.

    A folder that was being replaced gets its name back if its successor is missing.
    """
    for path in sorted(folder.glob(f"{UNFINISHED}*")):
        name = path.name.removeprefix(REPLACED)
        if path.name.startswith(REPLACED) and not os.path.lexists(folder / name):
            path.rename(folder / name)
        else:
            _delete(path)


def _check_replaceable(target: Path, may_replace: Callable[[Path], bool]) -> None:
    if os.path.lexists(target) and not may_replace(target):
        raise FileExistsError(f"{target} is not ours to replace")


def _moved_away(target: Path, prefix: str) -> Path:
    away = target.with_name(f"{prefix}{target.name}")
    _delete(away)
    target.replace(away)
    return away


def _delete(path: Path) -> None:
    """Delete a folder, a file or a link (not its target), if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A hidden name in the same folder (a rename across file systems is not atomic), of this process only."""
    return path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")


def _sync(path: Path) -> None:
    """Write a file or a folder's entries to the disk; a rename lasts only when its folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class StorageFailure(NamedTuple):
    """A failed operation on the file system, and its remedy."""

    message: str
    hint: str


def storage_failure(error: BaseException, place: os.PathLike[str] | None = None) -> StorageFailure | None:
    """Explain an error of the file system, None for any other; `place` is named where the error names no file."""
    found = _IN_RUST.search(str(error))
    number = error.errno if isinstance(error, OSError) else int(found[1]) if found else None
    if number is None or number not in _REMEDIES:
        return None
    names = (error.filename2, error.filename) if isinstance(error, OSError) else ()  # a target comes before its draft
    where = next((name for name in names if name is not None), place)
    return StorageFailure(f"{'' if where is None else f'{where}: '}{os.strerror(number)}", _REMEDIES[number])
