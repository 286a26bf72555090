"""The doors: the key, no web pages of others where there is none, and a limit on the size of a body."""

import hmac
from urllib.parse import urlsplit

from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from nat.capture.address import is_loopback
from nat.front_end.errors import ServeError, bad_request
from nat.wire.rollout import KEY_VARIABLE

MAX_BODY_BYTES = 32 * 2**20


class ApiKey:
    """Let through only requests with the key as a bearer token; compares in constant time."""

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        self._app = app
        self._expected = f"bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = _header(scope, b"authorization")
            scheme, _, key = header.partition(b" ")
            if not hmac.compare_digest(scheme.lower() + b" " + key, self._expected):
                seen = "another one" if header else "none"
                message = (
                    f"this server needs its key as a bearer token, got {seen}; clients of ours read {KEY_VARIABLE}"
                )
                await ServeError(message, status=401, type="authentication_error").response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


class NoWebPages:
    """Without a key, refuse what a page of another site sends: such requests name an `Origin` that is not this one.

    A site can give its own name this machine's address, so only the names of loopback count as this one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (origin := _header(scope, b"origin").decode("latin-1")):
            page = urlsplit(origin)
            own = page.netloc == _header(scope, b"host").decode("latin-1") and is_loopback(page.hostname or "")
            if not own:
                message = f"this server has no key, so it answers no web page of others (Origin: {origin})"
                await ServeError(message, status=403, type="permission_error").response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def read_body(request: Request, *, max_bytes: int = MAX_BODY_BYTES) -> object:
    """The JSON of a request; ServeError if there is none, or too much."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > max_bytes:
            raise bad_request(f"the body is larger than {max_bytes} bytes", status=413)
    try:
        body: object = from_json(content)
    except ValueError as error:
        raise bad_request(f"the body is no JSON: {error}") from error
    return body


def _header(scope: Scope, wanted: bytes) -> bytes:
    """The value of a header, empty if it was not sent."""
    value: bytes = next((value for name, value in scope["headers"] if name == wanted), b"")
    return value
