"""Tell work from waiting, so that a busy machine is not taken for a process that hangs or a function that blocks.

Linux counts for each thread how long it ran and how long it waited for a processor, and for each process what it wrote.
Where nothing counts that, time passes as on the clock.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

_NANO = 1e-9
_PROC = Path("/proc")
_WRITES = 4096
"""Fewer bytes are what threads write to wake each other."""
_DISK = "D"
"""State of a thread that waits for a disk."""


@dataclass(frozen=True)
class Work:
    """What processes have done so far."""

    seconds: float = 0.0
    """In which their threads ran or waited for a processor."""
    written: int = 0
    """Bytes."""
    at_disk: bool = False
    """True if a thread waits for a disk at this moment."""


Meter = Callable[[Iterable[int]], Work]
"""Measures the work of processes, by their numbers."""


def waited_for_processor(thread: int) -> float:
    """Seconds in which a thread of this process could have run, but had no processor; 0 where nothing counts them."""
    try:
        return int((_PROC / f"self/task/{thread}/schedstat").read_text().split()[1]) * _NANO
    except (OSError, IndexError, ValueError):
        return 0.0


def work_of(pids: Iterable[int]) -> Work:
    """The work of these processes and of all below them; what cannot be read counts as none."""
    work, pending = Work(), list(pids)
    while pending:
        folder = _PROC / f"{pending.pop()}"
        with suppress(OSError, ValueError, IndexError):  # another user's, and our own if its memory is private
            written = (folder / "io").read_text().partition("wchar: ")[2].split()[0]
            work = replace(work, written=work.written + int(written))
        with suppress(OSError):  # it has ended
            for thread in (folder / "task").iterdir():
                work = _with_thread(work, thread)
                with suppress(OSError):
                    pending += map(int, (thread / "children").read_text().split())
    return work


def _with_thread(work: Work, thread: Path) -> Work:
    try:
        ran, waited = (thread / "schedstat").read_text().split()[:2]
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):  # it has ended, or the system has no such file
        return work
    seconds = work.seconds + (int(ran) + int(waited)) * _NANO
    return replace(work, seconds=seconds, at_disk=work.at_disk or state == _DISK)


class Patience:
    """A deadline for our own processes: seconds in which they work do not count, up to a bound on the clock."""

    def __init__(
        self, idle: float, bound: float, *, meter: Meter = work_of, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """End after `idle` seconds without work, and after `bound` seconds in any case."""
        self._idle = idle
        self._bound = bound
        self._meter = meter
        self._clock = clock
        self._began = self._last = clock()
        self._before: Work | None = None
        self._idled = 0.0

    def __str__(self) -> str:
        """Why it has ended."""
        if self._idled >= self._idle:
            return f"it did nothing for {self._idle:g} s"
        return f"it still worked after {self._bound:g} s"

    def ended(self, pids: Iterable[int]) -> bool:
        """Measure again; True if these processes have been idle for long enough, or the bound is reached."""
        now, work = self._clock(), self._meter(pids)
        passed, self._last = now - self._last, now
        if self._before is None or not (work.at_disk or work.written >= self._before.written + _WRITES):
            worked = 0.0 if self._before is None else max(0.0, work.seconds - self._before.seconds)
            self._idled += max(0.0, passed - worked)
        self._before = work
        return self._idled >= self._idle or now - self._began >= self._bound
