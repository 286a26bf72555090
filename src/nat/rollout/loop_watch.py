"""Find the code that blocks the event loop: meanwhile no other rollout advances, and no deadline fires.

A thread checks that the loop still runs. If it does not, the stack of the loop's thread shows what it is in. Seconds in
which the loop's thread waited for a processor do not count: a busy machine delays innocent lines. Nor do checks that
find the thread in different places, as it then does much, but nothing for long.
"""

import asyncio
import inspect
import logging
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from linecache import getline
from pathlib import Path
from traceback import walk_stack
from types import FrameType

from nat.processor_time import waited_for_processor

logger = logging.getLogger(__name__)

CHECKS = 5
"""After this many seconds of failed checks in a row, the loop counts as blocked."""
SECONDS_PER_CHECK = 1.0
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LOOPS = {"event_loop", "runners", "base_events", "events", "selectors"}
"""Modules of the event loop itself; uvloop's frames are not Python's."""
_OURS = str(Path(__file__).parents[1])
_AWAITED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

Report = Callable[[int, str], None]  # a level of the log, and a line


@dataclass(frozen=True)
class Place:
    """A frame of the loop's thread."""

    filename: str
    name: str
    line: int
    is_awaited: bool = False
    """True for a coroutine, which the frame before it awaits."""
    frame: FrameType | None = None

    @classmethod
    def of(cls, frame: FrameType) -> "Place":
        """The place where this frame is now."""
        code = frame.f_code
        return cls(code.co_filename, code.co_name, frame.f_lineno, bool(code.co_flags & _AWAITED), frame)

    @property
    def is_known(self) -> bool:
        """True for the code of libraries and our own."""
        return self.filename.startswith((*_LIBRARIES, _OURS, "<frozen"))

    def __str__(self) -> str:
        line = getline(self.filename, self.line).strip()
        return f"{self.name} ({self.filename}:{self.line}{f': {line}' if line else ''})"


@dataclass(frozen=True)
class Blocked:
    """How long the loop has been in one call."""

    call: object = None
    """What the loop calls; None if it runs."""
    seconds: float = 0.0

    def after(self, call: object, seconds: float, waited: float) -> "Blocked":
        """After a check that found the loop in this call; for `waited` of its `seconds`, it had no processor."""
        worked = max(0.0, seconds - waited)
        return Blocked(call, self.seconds + worked if call is self.call else worked) if call else Blocked()


@contextmanager
def watched_loop(
    report: Report = logger.log, *, checks: int = CHECKS, seconds_per_check: float = SECONDS_PER_CHECK
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
        self._native = threading.get_native_id()
        self._report = report
        self._limit = checks * seconds_per_check
        self._seconds_per_check = seconds_per_check
        self._reported: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Count checks and not seconds: a process that was stopped (Ctrl-Z) was not blocked by its code."""
        blocked, waited = Blocked(), waited_for_processor(self._native)
        while not self.ended.wait(self._seconds_per_check):
            before, waited = waited, waited_for_processor(self._native)
            frame = None if self.ran.is_set() else sys._current_frames().get(self._watched)  # noqa: SLF001 - the documented way to another thread's stack
            stack = _called([Place.of(each) for each, _ in walk_stack(frame)][::-1]) if frame else []
            self.ran.clear()
            was = blocked.seconds
            blocked = blocked.after(stack[0].frame if stack else None, self._seconds_per_check, waited - before)
            if was < self._limit <= blocked.seconds:
                self._report_blocker(stack)

    def _report_blocker(self, called: Sequence[Place]) -> None:
        users = blocking_place(called)
        place = users or called[-1]
        if (place.filename, place.name) in self._reported:
            return
        self._reported.add((place.filename, place.name))
        remedy = "await an async client there, or make it a plain `def`, which runs in a thread"
        if users is None:
            awaits = "".join(f"; {each} awaits it" for each in called if not each.is_known)
            remedy = f"this is no code of yours{awaits}; if it comes again on an idle machine, report it with this line"
        self._report(
            logging.WARNING if users is None else logging.ERROR,
            f"the event loop has been blocked for {self._limit:g} s by {place}: until it returns, no rollout advances "
            f"and no deadline fires\n  → {remedy}",
        )


def _called(stack: Sequence[Place]) -> Sequence[Place]:
    """The part of the stack that the loop has called; empty if it is idle."""
    loops = [at for at, place in enumerate(stack) if place.is_known and Path(place.filename).stem in _LOOPS]
    return stack[loops[-1] + 1 :] if loops else stack


def blocking_place(called: Sequence[Place]) -> Place | None:
    """The innermost frame of the user's code that blocks; None if libraries or our own code do.

    A frame that awaits does not block; what it awaits does.
    """
    for at in reversed(range(len(called))):
        if at + 1 < len(called) and called[at + 1].is_awaited:
            return None
        if not called[at].is_known:
            return called[at]
    return None
