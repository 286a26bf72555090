"""A run whose machine is taken away: SIGTERM ends it within a grace, and `nat finetune --resume` goes on with it.

The command creates a `Preemption`, its signal handler begins it, and the run asks whether there is time for more.
"""

import shlex
import time
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path

EXIT_CODE = 75
"""EX_TEMPFAIL: the run is not done, and the same command with `--resume=auto` goes on with it."""
DEFAULT_GRACE = 30.0
"""Seconds that Kubernetes and SLURM give a process between SIGTERM and SIGKILL, unless they are told otherwise."""


class Preempted(CancelledError):
    """SIGTERM ended the run, which goes on later."""

    def __init__(self) -> None:
        super().__init__("interrupted by SIGTERM")


class Preemption:
    """Whether the run must end now to go on later, and the seconds that it has."""

    def __init__(self, grace: float = DEFAULT_GRACE, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.grace = grace
        self.completed = False
        """The run has completed, and nothing is left that could go on later."""
        self._clock = clock
        self._began: float | None = None

    def begin(self) -> None:
        """SIGTERM has come; safe in a signal handler."""
        if self._began is None:
            self._began = self._clock()

    @property
    def begun(self) -> bool:
        return self._began is not None

    @property
    def seconds_left(self) -> float:
        """Of the grace; all of it before it has begun, and at least 0."""
        return self.grace if self._began is None else max(0.0, self._began + self.grace - self._clock())

    @property
    def exit_code(self) -> int:
        return 0 if self.completed else EXIT_CODE

    def cause(self, error: BaseException) -> BaseException:
        """Why the run ends by this error: what fails after SIGTERM fails because of it, as servers get it as well."""
        return Preempted() if self.begun and not isinstance(error, Preempted) else error


def resume_command(run_dir: Path) -> str:
    """The command that goes on with a run."""
    return f"nat finetune --resume {shlex.quote(str(run_dir))}"
