"""What guards the server: the key, no web pages where there is none, and a limit on the size of every body."""

import base64
import hmac

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nat.asgi.head_check import Objection
from nat.backend.server.errors import ApiError


def needs_key(api_key: str, *, paths: str = "/") -> Objection:
    """Let through only requests with the key, as a bearer token or as the password of Basic authentication.

    `paths` is how the paths begin that need it. Compares in constant time.
    """
    if not api_key:
        raise ValueError("the server needs an API key")

    def objection(http: HTTPConnection) -> Response | None:
        header = http.headers.get("authorization", "")
        if not http.scope["path"].startswith(paths) or hmac.compare_digest(_presented(header), api_key.encode()):
            return None
        seen = "another key" if header else "no Authorization header"
        wanted = "as a bearer token, or as the password of Basic authentication (http://any:KEY@host)"
        message = f"this server needs its API key {wanted}; got {seen}"
        return ApiError(message, status=401, code="invalid_api_key").response()

    return objection


def no_web_pages(http: HTTPConnection) -> Response | None:
    """Refuse what a page in a browser sends, for servers whose key everybody knows: such requests carry `Origin`."""
    page = http.headers.get("origin")
    if not page:
        return None
    return ApiError(
        f"this server has no key of its own, so it answers no web page (Origin: {page}); "
        "start it with a key to let pages in that have it",
        status=403,
    ).response()


class BodyLimit:
    """Refuse bodies that are larger than the limit, by their announced or by their real size."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length") or "0"
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


def _presented(header: str) -> bytes:
    """The key in an Authorization header, empty if there is none; Basic's user name is anybody's."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.encode("latin-1")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except ValueError:
        return b""
