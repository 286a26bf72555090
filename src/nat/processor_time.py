"""Tell work from waiting, so that a busy machine is not taken for a process that hangs or a function that blocks.

Linux counts for each thread how long it ran and how long it waited for a processor, and for each process what it wrote.
Where nothing counts that, time passes as on the clock.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

_NANO = 1e-9
_PROC = Path("/proc")
LOOK_SECONDS = 0.2
"""Between two looks at what a process has done."""
_WRITES = 4096
"""Fewer bytes are what threads write to wake each other."""
_DISK = "D"
"""State of a thread that waits for a disk."""


@dataclass(frozen=True)
class Work:
    """What a process and those below it have done so far."""

    seconds: float = 0.0
    """In which their threads ran or waited for a processor."""
    written: int = 0
    """Bytes."""
    at_disk: bool = False
    """True if a thread waits for a disk at this moment."""


def waited_for_processor(thread: int) -> float:
    """Seconds in which a thread of this process could have run, but had no processor; 0 where nothing counts them."""
    try:
        return int((_PROC / f"self/task/{thread}/schedstat").read_text().split()[1]) * _NANO
    except (OSError, IndexError, ValueError):
        return 0.0


def work_of(pid: int) -> Work:
    """The work of this process and of all below it; what cannot be read counts as none."""
    work, pending = Work(), [pid]
    while pending:
        folder = _PROC / f"{pending.pop()}"
        with suppress(OSError, ValueError, IndexError):  # another user's, and our own if its memory is private
            written = (folder / "io").read_text().partition("wchar: ")[2].split()[0]
            work = replace(work, written=work.written + int(written))
        with suppress(OSError):  # it has ended
            for thread in (folder / "task").iterdir():
                with suppress(OSError, ValueError, IndexError):  # likewise, or the system has no such file
                    ran, waited = (thread / "schedstat").read_text().split()[:2]
                    seconds = work.seconds + (int(ran) + int(waited)) * _NANO
                    state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
                    work = replace(work, seconds=seconds, at_disk=work.at_disk or state == _DISK)
                    pending += map(int, (thread / "children").read_text().split())
    return work


class Patience:
    """A deadline for our own processes: seconds in which they work do not count, up to a bound on the clock."""

    def __init__(
        self,
        pid: int,
        idle: float,
        bound: float,
        *,
        meter: Callable[[int], Work] = work_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """End after `idle` seconds in which the process and those below it do nothing, at the latest after `bound`."""
        self._pid = pid
        self._idle = idle
        self._bound = bound
        self._meter = meter
        self._clock = clock
        self._began = self._last = clock()
        self._before = meter(pid)
        self._idled = 0.0

    def __str__(self) -> str:
        """Why it has ended."""
        if self._idled >= self._idle:
            return f"it did nothing for {self._idle:g} s"
        return f"it still worked after {self._bound:g} s"

    def ended(self) -> bool:
        """Measure again; True if the idle seconds or the bound are reached."""
        now, work, before = self._clock(), self._meter(self._pid), self._before
        if not (work.at_disk or work.written >= before.written + _WRITES):
            self._idled += max(0.0, now - self._last - max(0.0, work.seconds - before.seconds))
        self._last, self._before = now, work
        return self._idled >= self._idle or now - self._began >= self._bound
