"""The doors of the server: the key, no web pages where there is none, and a limit on the size of every body."""

import base64
import binascii
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nat.backend.server.errors import ApiError


class ApiKey:
    """Let through only requests with the key, as a bearer token or as the password of Basic authentication.

    `paths` is how the paths begin that need it. Compares in constant time.
    """

    def __init__(self, app: ASGIApp, *, api_key: str, paths: str = "/") -> None:
        if not api_key:
            raise ValueError("the server needs an API key")
        self._app = app
        self._expected = api_key.encode()
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._paths):
            header = _header(scope, b"authorization")
            if not hmac.compare_digest(_presented(header), self._expected):
                seen = "another key" if header else "no Authorization header"
                wanted = "as a bearer token, or as the password of Basic authentication (http://art:KEY@host)"
                error = ApiError(f"this server needs its API key {wanted}; got {seen}", status=401)
                error.code = "invalid_api_key"
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


class NoWebPages:
    """Refuse what a page in a browser sends, for servers whose key everybody knows: such requests carry `Origin`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (origin := _header(scope, b"origin")):
            page = origin.decode("latin-1")
            error = ApiError(
                f"this server has no key of its own, so it answers no web page (Origin: {page}); "
                "start it with a key to let pages in that have it",
                status=403,
            )
            await error.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)


class BodyLimit:
    """Refuse bodies that are larger than the limit, by their announced or by their real size."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = _header(scope, b"content-length") or b"0"
        if not announced.isdigit() or int(announced) > self._max_bytes:
            await self._error().response()(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._error()
            return message

        await self._app(scope, counted, send)

    def _error(self) -> ApiError:
        return ApiError(f"the request's body is larger than {self._max_bytes} bytes", status=413)


def _header(scope: Scope, wanted: bytes) -> bytes:
    """The value of a header, empty if it was not sent."""
    value: bytes = next((value for name, value in scope["headers"] if name == wanted), b"")
    return value


def _presented(header: bytes) -> bytes:
    """The key in an Authorization header, empty if there is none; Basic's user name is anybody's."""
    scheme, _, rest = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
