"""Whether a run's process still lives: it holds a lock on a file in the run's folder, which ends with the process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from nat.errors import JournalError
from nat.runs.records import RunState

LOCK_NAME = ".run.lock"


class ShownState(StrEnum):
    """A run's state as far as it can be known from outside."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """The journal says so; or it says `running`, and no process holds the run's lock."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    UNREADABLE = "unreadable"


@contextmanager
def marked_alive(run_dir: Path) -> Iterator[None]:
    """Hold the run's lock; the file stays, and its first line is the process's number.

    Raises:
        JournalError: another process holds it.

    """
    import fcntl

    with (run_dir / LOCK_NAME).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise JournalError(
                f"the run {run_dir.name} is going on, in process {file.readline().strip() or 'unknown'}",
                hint="wait for its end, or stop that process first",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_alive(run_dir: Path) -> bool:
    """True if a process holds the run's lock."""
    import fcntl

    try:
        with (run_dir / LOCK_NAME).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def shown_state(state: RunState, *, alive: bool) -> ShownState:
    """The journal's state, unless it says that a run goes on whose process has ended."""
    return ShownState.INTERRUPTED if state is RunState.RUNNING and not alive else ShownState(state.value)
