"""Plain ASGI: its types, headers, a writer of responses, and cancelling work when the client disconnects."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pydantic_core import to_json

from nat.http.errors import ApiError, ClientDisconnected

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"


def header(scope: Scope, name: bytes) -> bytes:
    """A header's first value, empty if it was not sent."""
    return next(iter(headers(scope, name)), b"")


def headers(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header; `name` is in lower case."""
    return [value for known, value in scope["headers"] if known == name]


class Sender:
    """One response: `whole`, or `begin`, `write` … `end`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def whole(
        self, status: int, content: bytes, content_type: str = JSON, extra: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Status, headers and body at once; `extra` are further headers."""
        self.begun = True
        length = (b"content-length", str(len(content)).encode())
        head = [(b"content-type", content_type.encode()), length, *extra]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": content})

    async def json(self, status: int, body: object) -> None:
        await self.whole(status, to_json(body))

    async def error(self, error: ApiError, extra: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        await self.whole(error.status, error.json(), extra=extra)

    async def begin(self, content_type: str) -> None:
        """The head of a response that comes in pieces."""
        self.begun = True
        head = [(b"content-type", content_type.encode()), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})

    async def write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": piece})


async def cancel_on_disconnect(receive: Receive, work: "asyncio.Future[Any]") -> None:
    """Wait until `work` is done; cancel it if the client closes the connection.

    Call this after reading the body. If the calling task is cancelled, `work` is cancelled, too.

    Raises:
        ClientDisconnected: before the work was done.

    """
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnected
    finally:
        await cancel_and_wait(gone, work)


async def cancel_and_wait(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel the unfinished tasks, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
