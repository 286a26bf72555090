"""Time limits of rollouts and scores, which a call moves while it waits for its server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar


class Deadline:
    """A time limit; use `deadline`."""

    def __init__(self, seconds: float | None, timer: asyncio.Timeout, outer: "Deadline | None") -> None:
        self.seconds = seconds
        self._timer = timer
        self._outer = outer
        self._loop = asyncio.get_running_loop()
        self._began = self._still_until = self._loop.time()
        self._still = 0.0
        self._ended = False

    @property
    def expired(self) -> bool:
        """The timer has fired."""
        return self._timer.expired()

    @property
    def is_over(self) -> bool:
        """The time has passed, even if the timer could not fire."""
        return self.seconds is not None and self._loop.time() - self._began - self._still > self.seconds

    def lift(self) -> None:
        """Remove the limit."""
        self._timer.reschedule(None)

    def end(self) -> None:
        """The block is over."""
        self._ended = True

    def stand_still(self, since: float, until: float) -> None:
        """Do not count this time, nor do the limits around this one; safe from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._move, since, until)
        if self._outer is not None:
            self._outer.stand_still(since, until)

    def _move(self, since: float, until: float) -> None:
        """Several calls may wait at once, so only time after what is known counts."""
        moved = until - max(since, self._still_until)
        if moved <= 0 or self._ended or self.expired:
            return
        self._still_until = until
        self._still += moved
        if (when := self._timer.when()) is not None:
            self._timer.reschedule(when + moved)


_current: ContextVar[Deadline | None] = ContextVar("nat_deadline", default=None)


current_deadline = _current.get
"""The innermost time limit in this context, if any."""


@asynccontextmanager
async def deadline(seconds: float | None) -> AsyncIterator[Deadline]:
    """Cancel the block with TimeoutError after so many seconds, those in which its calls wait not counted."""
    async with asyncio.timeout(seconds) as timer:
        limit = Deadline(seconds, timer, _current.get())
        token = _current.set(limit)
        try:
            yield limit
        finally:
            limit.end()
            _current.reset(token)
