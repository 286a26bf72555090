"""Find the code that blocks the event loop: meanwhile no other rollout advances, and no deadline fires.

A thread checks that the loop still runs. If it does not, the stack of the loop's thread shows which of the user's
functions is blocking.
"""

import asyncio
import logging
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import FrameSummary, extract_stack

logger = logging.getLogger(__name__)

CHECKS = 5
"""After this many failed checks in a row, the loop counts as blocked."""
SECONDS_PER_CHECK = 1.0
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LOOPS = {"event_loop", "runners", "base_events", "events", "selectors"}
"""Modules of the event loop itself; uvloop's frames are not Python's."""
_OURS = str(Path(__file__).parents[1])

Report = Callable[[str], None]


@contextmanager
def watched_loop(
    report: Report = logger.error, *, checks: int = CHECKS, seconds_per_check: float = SECONDS_PER_CHECK
) -> Iterator[None]:
    """Until the block ends, `report` once for each function that blocks the running event loop; from a thread."""
    loop = asyncio.get_running_loop()
    watch = _Watch(report, checks, seconds_per_check)

    def mark() -> None:
        watch.ran.set()
        if not watch.ended.is_set():
            loop.call_later(seconds_per_check / 2, mark)

    mark()
    watch.start()
    try:
        yield
    finally:
        watch.ended.set()


class _Watch(threading.Thread):
    """Watches the thread that creates it."""

    def __init__(self, report: Report, checks: int, seconds_per_check: float) -> None:
        super().__init__(name="loop-watch", daemon=True)
        self.ran = threading.Event()
        self.ended = threading.Event()
        self._watched = threading.get_ident()
        self._report = report
        self._checks = checks
        self._seconds_per_check = seconds_per_check
        self._reported: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Count checks and not seconds: a process that was stopped (Ctrl-Z) was not blocked by its code."""
        failed_checks = 0
        while not self.ended.wait(self._seconds_per_check):
            failed_checks = 0 if self.ran.is_set() else failed_checks + 1
            self.ran.clear()
            if failed_checks == self._checks:
                self._report_blocker()

    def _report_blocker(self) -> None:
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - the documented way to another thread's stack
        place = blocking_frame(extract_stack(frame)) if frame is not None else None
        if place is None or (place.filename, place.name) in self._reported:
            return
        self._reported.add((place.filename, place.name))
        self._report(
            f"the event loop has been blocked for {self._checks * self._seconds_per_check:g} s by {place.name} "
            f"({place.filename}:{place.lineno}: {place.line}): until it returns, no rollout advances and no deadline "
            "fires\n  → await an async client there, or make it a plain `def`, which runs in a thread"
        )


def blocking_frame(stack: Sequence[FrameSummary]) -> FrameSummary | None:
    """The innermost frame of the user's code that the loop runs; if there is none, the innermost of all.

    None if the loop is idle.
    """
    known = [frame.filename.startswith((*_LIBRARIES, _OURS, "<frozen")) for frame in stack]
    loops = [at for at, frame in enumerate(stack) if known[at] and Path(frame.filename).stem in _LOOPS]
    inside = range(loops[-1] + 1 if loops else 0, len(stack))
    return next((stack[at] for at in reversed(inside) if not known[at]), stack[-1] if inside else None)
