"""The output folder of a backend belongs to one process, because two would write checkpoints of the same numbers."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nat.errors import BackendError
from nat.files import storage_failure

LOCK = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; the system releases the lock however the process ends.

    Raises:
        BackendError: another process has locked it, or it cannot be written to.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+")
    except OSError as error:
        known = storage_failure(error)
        raise BackendError(
            f"cannot write to {folder}: {error.strerror or error}",
            hint="choose another --output_dir" if known is None else known.hint,
        ) from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise BackendError(
                f"{folder} is in use by another server, process {file.read().strip() or '(starting)'}",
                hint="stop that server, or choose another --output_dir",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
