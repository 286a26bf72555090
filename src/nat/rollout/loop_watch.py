"""Names the code that holds up the event loop: no other rollout goes on meanwhile, and no deadline can go off.

A thread of its own looks whether the loop still turns. Where it does not, the stack of the loop's thread tells which
function of the user's it is in.
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

LOOKS = 5
"""So many looks in a row that find the loop where it was mean that it is held up."""
SECONDS_PER_LOOK = 1.0
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LOOPS = {"event_loop", "runners", "base_events", "events", "selectors"}
"""Modules whose frames are those of a loop that turns; uvloop's has none of its own."""
_OURS = str(Path(__file__).parents[1])

Report = Callable[[str], None]


@contextmanager
def watched_loop(
    report: Report = logger.error, *, looks: int = LOOKS, seconds_per_look: float = SECONDS_PER_LOOK
) -> Iterator[None]:
    """Until the block ends, `report` once for each function that holds up the running event loop; from a thread."""
    loop = asyncio.get_running_loop()
    watch = _Watch(report, looks, seconds_per_look)

    def turn() -> None:
        watch.turned.set()
        if not watch.ended.is_set():
            loop.call_later(seconds_per_look / 2, turn)

    turn()
    watch.start()
    try:
        yield
    finally:
        watch.ended.set()


class _Watch(threading.Thread):
    """Looks at the thread that makes it."""

    def __init__(self, report: Report, looks: int, seconds_per_look: float) -> None:
        super().__init__(name="loop-watch", daemon=True)
        self.turned = threading.Event()
        self.ended = threading.Event()
        self._watched = threading.get_ident()
        self._report = report
        self._looks = looks
        self._seconds_per_look = seconds_per_look
        self._told: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Counts its own looks and no clock, since a process that was stopped (Ctrl-Z) was held up by nobody."""
        stuck = 0
        while not self.ended.wait(self._seconds_per_look):
            stuck = 0 if self.turned.is_set() else stuck + 1
            self.turned.clear()
            if stuck == self._looks:
                self._tell()

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - the documented way to another thread's stack
        place = blamed(extract_stack(frame)) if frame is not None else None
        if place is None or (place.filename, place.name) in self._told:
            return
        self._told.add((place.filename, place.name))
        self._report(
            f"the event loop has been held up for {self._looks * self._seconds_per_look:g} s by {place.name} "
            f"({place.filename}:{place.lineno}: {place.line}): until it returns, no rollout goes on and no deadline "
            "goes off\n  → await an async client there, or make it a plain `def`, which gets a thread of its own"
        )


def blamed(stack: Sequence[FrameSummary]) -> FrameSummary | None:
    """Of what the loop runs, the innermost frame that is neither a library's nor ours; the innermost if all are.

    None if the loop runs nothing.
    """
    known = [frame.filename.startswith((*_LIBRARIES, _OURS, "<frozen")) for frame in stack]
    loops = [at for at, frame in enumerate(stack) if known[at] and Path(frame.filename).stem in _LOOPS]
    inside = range(loops[-1] + 1 if loops else 0, len(stack))
    return next((stack[at] for at in reversed(inside) if not known[at]), stack[-1] if inside else None)
