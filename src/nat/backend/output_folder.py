"""The output folder of a backend belongs to one process, because two would write checkpoints of the same numbers."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from nat.errors import BackendError
from nat.files import storage_failure

LOCK = ".lock"
_LOOK_SECONDS = 0.1


@contextmanager
def claimed(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Lock the folder for this process; the system releases the lock however the process ends."""
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
        deadline = monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if monotonic() >= deadline:
                    file.seek(0)
                    raise BackendError(
                        f"{folder} is in use by another server, process {file.read().strip() or '(starting)'}",
                        hint="stop that server, or choose another --output_dir",
                    ) from error
            sleep(_LOOK_SECONDS)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
