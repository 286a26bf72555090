"""Plain ASGI: its types, headers, bodies of requests, a writer of responses, and cancelling work on a disconnect."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from pydantic_core import from_json, to_json

from nat.http.errors import ApiError, ClientDisconnected
from nat.secrets import excerpt

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
MAX_BODY_BYTES = 256 * 2**20
"""Of a request: a batch to train on, with the token ids and log probabilities of all its rollouts."""


def header(scope: Scope, name: bytes) -> bytes:
    """A header's first value, empty if it was not sent."""
    return next(iter(headers(scope, name)), b"")


def headers(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header; `name` is in lower case."""
    return [value for known, value in scope["headers"] if known == name]


async def read_body(receive: Receive) -> bytes:
    """The whole body; ClientDisconnected if the client goes before it has come."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


class BodyLimit:
    """Middleware that refuses larger bodies with 413, by their announced or their real size."""

    def __init__(self, app: App, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the request's body is larger than {self._max_bytes} bytes"
        too_large = ApiError(message, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        announced = header(scope, b"content-length") or b"0"
        if not announced.isdigit() or int(announced) > self._max_bytes:
            await Sender(send).error(too_large)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise too_large
            return message

        await self._app(scope, counted, send)


def parse_json(body: bytes) -> object:
    """A body as JSON; ApiError if it is none."""
    try:
        value: object = from_json(body)
    except ValueError as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    return value


def model_named(request: Mapping[str, object]) -> str | None:
    """The name of the model in a request, None if it names none; ApiError if it is no text."""
    name = request.get("model")
    if name is None or isinstance(name, str):
        return name
    raise ApiError(f"model: wanted a name, got {excerpt(repr(name), 80)}", param="model")


class Sender:
    """One response: `whole`, or `begin`, `write` … `end`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def whole(self, status: int, content: bytes, content_type: str = JSON) -> None:
        """Status, headers and body at once."""
        self.begun = True
        length = (b"content-length", str(len(content)).encode())
        head = [(b"content-type", content_type.encode()), length]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": content})

    async def json(self, status: int, body: object) -> None:
        await self.whole(status, to_json(body))

    async def error(self, error: ApiError) -> None:
        await self.whole(error.status, error.json())

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
