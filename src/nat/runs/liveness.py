"""Whether a run's process still lives: it holds a lock on a file in the run's folder, which ends with the process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = ".run.lock"


@contextmanager
def marked_alive(run_dir: Path) -> Iterator[None]:
    """Hold the run's lock; the file stays, and its first line is the process's number."""
    import fcntl  # noqa: PLC0415 - POSIX only; elsewhere `nat` trains nothing

    with (run_dir / LOCK_NAME).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_alive(run_dir: Path) -> bool | None:
    """True if a process holds the run's lock; None if that cannot be known, as older releases made no lock."""
    try:
        import fcntl  # noqa: PLC0415 - POSIX only

        file = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_NONBLOCK)  # else a FIFO of that name would block
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(file)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    return False
