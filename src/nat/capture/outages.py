"""Servers of LLMs that are away, and the time limits that stand still until they are back.

`nat.capture.waiting` says what counts as away, and lets calls wait. A failure that a request may cause itself (a prompt
on which a server fails) is an outage only if two different requests meet it, without an answer to any between them, and
if the server has answered before: one that never did is a mistake, which is told at once.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from threading import Event, RLock

from nat.errors import BackendUnreachable

logger = logging.getLogger(__name__)

OUTAGE_TIMEOUT = "eval.general.outage_timeout"
_LONGEST_PAUSE = 30.0
_SILENT_SECONDS = 5.0
"""An outage that is shorter is not worth a word: a server that limits rates has many."""
_SECONDS_TO_END = 5.0
"""After the wait is given up, calls are held for so long, so that the run ends by its cause and not by their errors."""


@dataclass
class Server:
    """What is known of one server."""

    name: str
    away_since: float | None = None
    why: str = ""
    has_answered: bool = False
    waiting: int = 0
    """Calls that wait for it."""
    told: bool = False
    suspects: set[int] = field(default_factory=set)
    """Requests that may have failed by their own fault since the last answer."""


class Outages:
    """The servers that are away, and the time limits that stand still for them; safe from any thread."""

    def __init__(
        self, longest: float, *, answered: bool = False, first_pause: float = 1.0, rng: Random | None = None
    ) -> None:
        """Wait `longest` seconds at most, with pauses that grow from `first_pause`.

        If servers have `answered` before, as in a run that goes on, one that fails on everything is no mistake.
        """
        self.longest = longest
        self.lost: BackendUnreachable | None = None
        """Why a wait was given up."""
        self._answered = answered
        self._first_pause = first_pause
        self._rng = rng or Random()
        self._silent = min(_SILENT_SECONDS, longest / 4)
        self._lock = RLock()
        self._servers: dict[str, Server] = {}
        self._deadlines: set[Deadline] = set()
        self._closed = Event()
        self._since: float | None = None
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """In which a server was away, so far."""
        with self._lock:
            return self._ended + (0.0 if self._since is None else time.monotonic() - self._since)

    def close(self) -> None:
        """Nobody waits any longer."""
        self._closed.set()

    @contextmanager
    def standing_still(self, deadline: "Deadline") -> Iterator[None]:
        """Until the block ends, the deadline stands still while a server is away."""
        with self._lock:
            self._deadlines.add(deadline)
            if self._since is not None:
                deadline.pause()
        try:
            yield
        finally:
            with self._lock:
                self._deadlines.discard(deadline)

    def server(self, name: str) -> "Server":
        """What is known of a server."""
        with self._lock:
            return self._servers.setdefault(name, Server(name, has_answered=self._answered))

    @contextmanager
    def waiting_for(self, server: "Server") -> Iterator[None]:
        """A call waits until the block ends; when nobody waits, nobody would notice the server's return."""
        with self._lock:
            server.waiting += 1
        try:
            yield
        finally:
            with self._lock:
                server.waiting -= 1
                if server.waiting == 0:
                    self._over(server)

    def pause_between(self, seconds: float) -> None:
        """Wait in a thread, until the end at the latest."""
        self._closed.wait(seconds)

    def failed(self, server: Server, digest: int, why: str, *, surely: bool) -> bool:
        """A request had no answer; True if the server is away."""
        with self._lock:
            if self._closed.is_set():
                return False
            if not surely:
                server.suspects.add(digest)
                if server.away_since is None and (len(server.suspects) == 1 or not server.has_answered):
                    return False
            now, server.why = time.monotonic(), why
            if server.away_since is None:
                server.away_since = now
                self._begin(now)
            if not server.told and now - server.away_since >= self._silent:
                server.told = True
                text = "the server of %s is away (%s); waiting for it, for at most %g s (%s)"
                logger.warning(text, server.name, why, self.longest, OUTAGE_TIMEOUT)
            return True

    def answered(self, server: Server) -> None:
        """It has answered, if only that a request is wrong."""
        with self._lock:
            server.suspects.clear()
            server.has_answered = True
            if server.told and server.away_since is not None:
                seconds = time.monotonic() - server.away_since
                logger.warning("the server of %s answers again after %.0f s", server.name, seconds)
            self._over(server)

    def pause(self, server: Server, attempt: int, requested: float) -> float:
        """Seconds until the next attempt: growing, spread, as long as the server asks for, and not beyond the end."""
        longest = min(_LONGEST_PAUSE, self._first_pause * 2.0 ** min(attempt - 1, 20))
        seconds = max(self._rng.uniform(0.5, 1.0) * longest, requested)
        left = self.longest if self.lost is None else self.longest + _SECONDS_TO_END
        return max(0.01, min(seconds, left - self._away_for(server)))

    def is_given_up(self, server: Server, waited: float) -> bool:
        """True if the call is not repeated: it waits too long, or the run has had time to end."""
        away = self._away_for(server)
        if away >= self.longest and self.lost is None:
            self.lost = BackendUnreachable(
                f"the server of {server.name} has been away for {away:.0f} s ({server.why})",
                hint="start it again, or correct its address; then `nat finetune --resume` goes on with a run. "
                f"{OUTAGE_TIMEOUT} is how long a call waits",
            )
        flickers = waited >= self.longest and away < self.longest
        return self._closed.is_set() or flickers or away >= self.longest + _SECONDS_TO_END

    def _away_for(self, server: Server) -> float:
        with self._lock:
            return 0.0 if server.away_since is None else time.monotonic() - server.away_since

    def _begin(self, now: float) -> None:
        if self._since is None:
            self._since = now
            for deadline in self._deadlines:
                deadline.soon(deadline.pause)

    def _over(self, server: Server) -> None:
        if server.away_since is None:
            return
        server.away_since, server.told = None, False
        if self._since is not None and all(each.away_since is None for each in self._servers.values()):
            self._ended += time.monotonic() - self._since
            self._since = None
            for deadline in self._deadlines:
                deadline.soon(deadline.go_on)


class Deadline:
    """A time limit that stands still while a server is away; use `deadline`."""

    def __init__(self, seconds: float | None, timer: asyncio.Timeout, outages: Outages | None) -> None:
        self.seconds = seconds
        self._timer = timer
        self._outages = outages
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._away = 0.0 if outages is None else outages.seconds
        self._left: float | None = None
        self._ended = False

    @property
    def expired(self) -> bool:
        """The timer has fired."""
        return self._timer.expired()

    @property
    def is_over(self) -> bool:
        """The time has passed, even if the timer could not fire."""
        away = 0.0 if self._outages is None else self._outages.seconds - self._away
        return self.seconds is not None and time.monotonic() - self._began - away > self.seconds

    def end(self) -> None:
        """The block is over; a pause that was on its way comes too late."""
        self._ended = True

    def lift(self) -> None:
        """Remove the limit."""
        self._left = None
        self._timer.reschedule(None)

    def soon(self, action: Callable[[], None]) -> None:
        """Do it on the loop of the timer."""
        self._loop.call_soon_threadsafe(action)

    def pause(self) -> None:
        when = self._timer.when()
        if when is not None and not self._ended and not self.expired:
            self._left = when - self._loop.time()
            self._timer.reschedule(None)

    def go_on(self) -> None:
        if self._left is not None and not self._ended and not self.expired:
            self._timer.reschedule(self._loop.time() + self._left)
        self._left = None


@asynccontextmanager
async def deadline(seconds: float | None) -> AsyncIterator[Deadline]:
    """Cancel the block with TimeoutError after so many seconds, those in which a server is away not counted."""
    outages = current_outages()
    async with asyncio.timeout(seconds) as timer:
        limit = Deadline(seconds, timer, outages)
        if outages is None:
            yield limit
            return
        try:
            with outages.standing_still(limit):
                yield limit
        finally:
            limit.end()


_current: ContextVar[Outages | None] = ContextVar("nat_outages", default=None)


def current_outages() -> Outages | None:
    """Who waits for servers in this context; None if nobody does."""
    return _current.get()


@contextmanager
def waited_for(longest: float, *, answered: bool = False) -> Iterator[Outages]:
    """Until the block ends, calls in it wait for their servers, for at most so many seconds; with 0 they do not."""
    outages = Outages(longest, answered=answered)
    token = _current.set(outages if longest > 0 else None)
    try:
        yield outages
    finally:
        outages.close()
        _current.reset(token)
