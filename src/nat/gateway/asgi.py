"""The little of ASGI that the gateway needs: read a body within bounds, look up a header, send an answer."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pydantic_core import to_json

from nat.gateway.limits import Limits
from nat.gateway.refusal import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = "application/json"
EVENTS = "text/event-stream"


class ClientGone(Exception):
    """The client closed the connection."""


def header(scope: Scope, name: bytes) -> bytes:
    """A header's value, empty if it was not sent."""
    return next((value for known, value in scope["headers"] if known == name), b"")


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body; Refusal if it is too large, told before it is read where it says its size."""
    too_large = Refusal(413, f"the body of a request may have {limits.body_bytes} bytes")
    said = header(scope, b"content-length")
    if said.isdigit() and int(said) > limits.body_bytes:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limits.body_bytes:
            raise too_large
        if not message.get("more_body"):
            return bytes(body)


async def disconnected(receive: Receive) -> None:
    """Wait until the client has gone; to be called when the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Sender:
    """One answer: `whole`, or `begin`, `write` … `end`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def whole(self, status: int, content: bytes, content_type: str = JSON) -> None:
        self.begun = True
        length = (b"content-length", str(len(content)).encode())
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", content_type.encode()), length],
            }
        )
        await self._send({"type": "http.response.body", "body": content})

    async def json(self, status: int, body: object) -> None:
        await self.whole(status, to_json(body))

    async def begin(self, content_type: str) -> None:
        """The head of an answer that comes in pieces."""
        self.begun = True
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": piece})
