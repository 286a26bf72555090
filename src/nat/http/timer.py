"""A time limit for a client that does not count the time in which this process could not answer it."""

import asyncio
from collections.abc import Callable

_TICKS = 10


class LoopTimer:
    """Calls back after so many seconds in which the event loop ran.

    A machine under load, or a long step of the loop, is no client's fault: what the client has sent meanwhile is still
    unread. So the time is counted in tenths, each of which ends in a turn of the loop of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._tick_seconds = seconds / _TICKS
        self._callback = callback
        self._left = _TICKS
        self._next = loop.call_later(self._tick_seconds, self._tick)

    def cancel(self) -> None:
        self._next.cancel()

    def _tick(self) -> None:
        self._left -= 1
        if self._left:
            self._next = self._loop.call_later(self._tick_seconds, self._tick)
        else:
            self._callback()
