"""One server per folder: a second one on the same files would tear them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nat.errors import BackendError

LOCK = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the system lets go of it however the process ends.

    Raises:
        BackendError: another process holds it.

    """
    import fcntl  # noqa: PLC0415 - POSIX only, and the rest of the backend runs without it

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise BackendError(
                f"{folder} is in use by another server, process {file.read().strip() or '(starting)'}",
                hint="stop that one, or choose another --output_dir",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
