"""Requests that clients wait for by polling: each runs once, however often it is sent; results are kept a while."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from nat.backend.failures import explained
from nat.errors import BackendError, TooManyJobs
from nat.http.errors import ApiError

logger = logging.getLogger(__name__)

POLL_SECONDS = 20.0
"""A poll ends after this with `try_again`; the official client gives up a connection after 45 seconds."""
MAX_PENDING, MAX_PENDING_VALUES = 4096, 2**25
"""Requests that wait, and the numbers in them and in their answers."""
MAX_KEPT, MAX_KEPT_VALUES = 20_000, 2**26
"""Requests that have ended and can be read again, and the numbers in them; the oldest are forgotten first."""


@dataclass(frozen=True)
class Result:
    """What a client reads, in JSON or, if that is what it accepts, in protobuf."""

    json: Callable[[], dict[str, Any]]
    protobuf: Callable[[], bytes] | None = None


class Futures:
    """The requests by their ids, for the event loop."""

    def __init__(self) -> None:
        self._known: dict[str, asyncio.Task[Result]] = {}
        self._waiting: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._values = {"waiting": 0, "ended": 0}

    def begin(self, request_id: str, work: Callable[[], Coroutine[Any, Any, Result]], *, values: int = 1) -> None:
        """Run a request, unless it was sent before; it goes on whether or not its client polls.

        Raises:
            TooManyJobs: too many wait; clients then send theirs again.

        """
        if request_id in self._known:
            return
        count, total = len(self._waiting), self._values["waiting"]
        if count >= MAX_PENDING or (count and total + values > MAX_PENDING_VALUES):
            raise TooManyJobs(f"{count} requests of {total} values wait", hint="send it again later")
        self._waiting[request_id] = values
        self._values["waiting"] += values
        task = self._known[request_id] = asyncio.create_task(work())
        task.add_done_callback(lambda task: self._end(request_id, task))

    def _end(self, request_id: str, task: asyncio.Task[Result]) -> None:
        """Keep a result that its client may ask for again, and forget the oldest beyond the limits."""
        if not task.cancelled() and not isinstance(error := task.exception(), ApiError | BackendError | None):
            logger.error("a request of a client failed", exc_info=error)
        self._ended[request_id] = values = self._waiting.pop(request_id)
        self._values["waiting"] -= values
        self._values["ended"] += values
        while len(self._ended) > MAX_KEPT or self._values["ended"] > MAX_KEPT_VALUES:
            oldest = next(iter(self._ended))
            self._values["ended"] -= self._ended.pop(oldest)
            del self._known[oldest]

    async def poll(self, request_id: str, seconds: float = POLL_SECONDS) -> Result:
        """The result, or in its place the failure, or that the client is to ask again.

        Raises:
            ApiError: 410 if the request is not known, or no longer; the client then sends it again.

        """
        if request_id not in self._known:
            raise ApiError(f"no request {request_id!r} is known here (any more); send it again", status=410)
        task = self._known[request_id]
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            return Result(lambda: {"type": "try_again", "request_id": request_id, "queue_state": "active"})
        return task.result() if (error := task.exception()) is None else _failure(error)


def _failure(error: BaseException) -> Result:
    """What a client can correct is its own part."""
    message, category = "; ".join(explained(error)), "server"
    if isinstance(error, ApiError):
        message, category = error.message, "user" if error.status < 500 else "server"
    elif isinstance(error, BackendError):
        message, category = error.in_line, "user"
    return Result(lambda: {"error": message, "category": category})
