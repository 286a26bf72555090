"""Files that cannot be written, in words that a user can act on; one rule for the harness and the backend."""

import errno
import os
import re
from typing import NamedTuple

_DISK_FULL = "free some space there, or write to another disk"
_NOT_ALLOWED = "choose a folder that you may write to, or change its owner or mode"
_REMEDIES = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EROFS: _NOT_ALLOWED,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENOTDIR: "a file is in the way of a folder: choose another folder",
    errno.EIO: "look into the system's log; a limit of a file's size (ulimit -f) can look like this, too",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower eval.general.max_concurrency",
    errno.ENFILE: "close other programs, or raise the system's limit of open files",
}
_IN_RUST = re.compile(r"\(os error (\d+)\)")
"""How the errors of safetensors and tokenizers end."""


class StorageFailure(NamedTuple):
    """What is wrong with a file, and what to do about it."""

    message: str
    hint: str


def storage_failure(error: BaseException, place: os.PathLike[str] | None = None) -> StorageFailure | None:
    """None if it is no failure of files; `place` is what was to be written, for errors that do not name it."""
    number = _number(error)
    if number is None or number not in _REMEDIES:
        return None
    named = error.filename if isinstance(error, OSError) else None
    where = named if named is not None else place
    return StorageFailure(f"{'' if where is None else f'{where}: '}{os.strerror(number)}", _REMEDIES[number])


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    found = _IN_RUST.search(str(error))
    return int(found[1]) if found else None
