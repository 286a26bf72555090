"""Requests that clients wait for by polling: each runs once, however often it is sent; results are kept a while."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from nat.backend.failures import explained
from nat.errors import BackendError
from nat.http.errors import ApiError

logger = logging.getLogger(__name__)

POLL_SECONDS = 20.0
"""A poll ends after this with `try_again`; the official client gives up a connection after 45 seconds."""
MAX_KEPT_VALUES, ENTRY_VALUES = 2**26, 2**12
"""Numbers in the requests that have ended and can be read again, and what each weighs beside its own; the oldest are
forgotten first."""


@dataclass(frozen=True)
class Result:
    """What a client reads, in JSON or, if that is what it accepts, in protobuf."""

    json: Callable[[], dict[str, Any]]
    protobuf: Callable[[], bytes] | None = None


class Futures:
    """The requests by their ids, for the event loop."""

    def __init__(self) -> None:
        self._known: dict[str, asyncio.Task[Result]] = {}
        self._ended: dict[str, int] = {}
        self._values = 0

    def begin(self, request_id: str, work: Callable[[], Coroutine[Any, Any, Result]], *, values: int = 1) -> None:
        """Run a request of so many numbers, unless it was sent before; it goes on whether or not its client polls."""
        if request_id in self._known:
            return
        task = self._known[request_id] = asyncio.create_task(work())
        task.add_done_callback(lambda task: self._end(request_id, task, values))

    def _end(self, request_id: str, task: asyncio.Task[Result], values: int) -> None:
        """Keep a result that its client may ask for again, and forget the oldest beyond the limit."""
        if not task.cancelled() and not isinstance(error := task.exception(), ApiError | BackendError | None):
            logger.error("a request of a client failed", exc_info=error)
        self._ended[request_id] = values + ENTRY_VALUES
        self._values += self._ended[request_id]
        while self._values > MAX_KEPT_VALUES:
            oldest = next(iter(self._ended))
            self._values -= self._ended.pop(oldest)
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
