"""How large requests may be, how many values they may have, and how slowly they may come; with the reasons.

A limit is checked before what it bounds costs anything: by the announced size, by the bytes that have come, by a count
of brackets and commas before JSON is parsed.
"""

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from pydantic_core import from_json

from nat.http.asgi import App, Message, Receive, Scope, Send, Sender, header, headers
from nat.http.errors import ApiError, ClientDisconnected
from nat.secrets import excerpt

MAX_BODY_BYTES = 32 * 2**20
"""A conversation with its images."""
MAX_BATCH_BYTES = 256 * 2**20
"""A batch to train on, with the token ids and log probabilities of all its rollouts."""
MAX_HELD_BYTES = 2**30
"""Bytes of the bodies of all requests in progress together."""

MAX_OBJECTS = 100_000
"""Objects and lists in a request to a model or a workflow; parsing them blocks all others for half a second."""
MAX_VALUES = 2_000_000
"""Commas in such a request, also inside texts; no context has as many token ids."""
MAX_KEYS = 500_000
"""Colons in such a request, also inside texts; an object with as many different keys takes a quarter of a second."""
MAX_BATCH_VALUES = 2**24
"""Values, objects and lists in a batch; parsing as many numbers takes about a second."""

_KEYS_OF_OBJECT = 4
"""Keys for each object or list of a batch; a rollout of one row has 14 for five of them."""

MAX_MODEL_CHARS = 1000
"""Characters of a model's name, which each event of a stream repeats."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one connection, and the number of connections, each of which costs a file descriptor."""

    head_seconds: float = 10.0
    """From the first byte of a request, or from the beginning of the connection, to the end of its headers."""
    head_bytes: int = 64 * 2**10
    """Bytes of a request's headers, and of chunk sizes and trailers."""
    body_seconds: float = 30.0
    """For the body, plus the time that it takes at `body_rate`."""
    body_rate: float = 10_000.0
    """Bytes per second of the slowest client; a batch may have hundreds of megabytes."""
    unread_seconds: float = 120.0
    """How long a response may wait for a client that does not read."""
    connections: int = 2000

    @property
    def max_connections(self) -> int:
        """At most three quarters of the file descriptors of the process; the rest is for its files."""
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.connections if open_files == resource.RLIM_INFINITY else min(self.connections, open_files * 3 // 4)


async def read_body(
    scope: Scope, receive: Receive, *, max_bytes: int = MAX_BODY_BYTES, reason: str = "", code: str | None = None
) -> bytes:
    """Read the whole body; the error gives `reason` for the limit.

    Raises:
        ApiError: 413; before anything is read, if the size is announced. 415 for a compressed body.
        ClientDisconnected: before the body had come.

    """
    check_encoding(scope)
    announced = header(scope, b"content-length")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes, reason, code)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes, reason, code)
        if not message.get("more_body"):
            return bytes(body)


def check_encoding(scope: Scope) -> None:
    """Refuse a compressed body: some bytes of it can become gigabytes.

    Raises:
        ApiError: 415.

    """
    encodings = b", ".join(headers(scope, b"content-encoding")).decode("latin-1")
    if encodings.lower() not in {"", "identity"}:
        message = f"the body is compressed (Content-Encoding: {excerpt(encodings, 100)}); send it as it is"
        raise ApiError(message, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def _too_large(max_bytes: int, reason: str = "", code: str | None = None) -> ApiError:
    message = f"the request's body is larger than {max_bytes} bytes" + (f", {reason}" if reason else "")
    return ApiError(message, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, code=code)


def parse_json(body: bytes) -> object:
    """Parse a body as JSON.

    Raises:
        ApiError: 413 for too many values, 400 for invalid JSON.

    """
    check_request(body)
    try:
        value: object = from_json(body)
    except ValueError as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    return value


def model_named(request: Mapping[str, object]) -> str | None:
    """The name of the model in a request; None if it names none.

    Raises:
        ApiError: 400 for a name that is too long, or no text.

    """
    name = request.get("model")
    if name is None or (isinstance(name, str) and len(name) <= MAX_MODEL_CHARS):
        return name
    message = f"model: wanted a name of at most {MAX_MODEL_CHARS} characters, got {excerpt(repr(name), 80)}"
    raise ApiError(message, param="model")


def check_request(body: bytes) -> None:
    """Refuse a request with more values than a conversation can have, before parsing it.

    Raises:
        ApiError: 413.

    """
    _check(_objects(body), MAX_OBJECTS, "brackets and braces that open")
    _check(body.count(b","), MAX_VALUES, "commas")
    _check(body.count(b":"), MAX_KEYS, "colons")


def check_batch(body: bytes, *, max_objects: int = MAX_BATCH_VALUES) -> None:
    """Refuse a batch with too many values, before parsing it; batches may have hundreds of megabytes.

    Raises:
        ApiError: 413.

    """
    _check(_objects(body), max_objects, "brackets and braces that open")
    _check(_objects(body) + body.count(b","), MAX_BATCH_VALUES, "values")
    _check(body.count(b":"), min(_KEYS_OF_OBJECT * max_objects, MAX_BATCH_VALUES), "colons")


def _objects(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[")


def _check(found: int, most: int, what: str) -> None:
    if found > most:
        message = f"the body has {found} {what}; at most {most}"
        raise ApiError(message, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


class BodyLimit:
    """Middleware that refuses bodies above the limit, by their announced or their real size."""

    def __init__(self, app: App, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = header(scope, b"content-length") or b"0"
        if not announced.isdigit() or int(announced) > self._max_bytes:
            await Sender(send).error(_too_large(self._max_bytes))
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise _too_large(self._max_bytes)
            return message

        await self._app(scope, counted, send)


class HeldBodies:
    """Middleware that limits the bytes of all requests in progress; a request above the limit may be retried."""

    def __init__(self, app: App, *, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held, begun, refused = 0, False, False

        async def counted() -> Message:
            nonlocal held, refused
            message = {"type": "http.disconnect"} if refused else await receive()
            size = len(message.get("body", b""))
            if size and self._held + size > self._max_bytes:
                refused = True
                if not begun:
                    await self._refuse(send)
                return {"type": "http.disconnect"}
            held += size
            self._held += size
            return message

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            if not refused:
                await send(message)

        try:
            await self._app(scope, counted, sent)
        finally:
            self._held -= held

    async def _refuse(self, send: Send) -> None:
        message = f"the requests in progress hold {self._max_bytes} bytes together, so there is no room for this one"
        error = ApiError(message, status=HTTPStatus.SERVICE_UNAVAILABLE)
        await Sender(send).error(error, ((b"retry-after", b"1"), (b"connection", b"close")))
