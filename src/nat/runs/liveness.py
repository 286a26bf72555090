"""Whether a run's process still lives: it holds a lock on a file in the run's folder, which ends with the process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from nat.runs.records import RunState

LOCK_NAME = ".run.lock"


class ShownState(StrEnum):
    """A run's state as far as it can be known from outside."""

    RUNNING = "running"
    KILLED = "killed"
    """The journal says `running`, and no process holds the run's lock."""
    RUNNING_OR_KILLED = "running or killed"
    """The same, but the release that began the run made no lock."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    UNREADABLE = "unreadable"


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


def shown_state(state: RunState, *, alive: bool | None) -> ShownState:
    """The journal's state, unless it says that a run goes on whose process has ended."""
    if state is not RunState.RUNNING or alive:
        return ShownState(state.value)
    return ShownState.RUNNING_OR_KILLED if alive is None else ShownState.KILLED
