"""Who may use the pages: whoever opens the link with the key. And what a page may do: nothing but show itself."""

from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode

from starlette.requests import cookie_parser

from nat.http.asgi import App, Message, Receive, Scope, Send, header
from nat.http.guards import same_key

KEY = "key"
"""Name of the link's parameter."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_READING = {"GET", "HEAD"}
_REFUSED = b"This page needs the link that `nat ui` has printed, with its key.\n"


class Access:
    """Middleware: takes the key from the link once and gives a cookie for it; all responses get the strict headers."""

    def __init__(self, app: App, key: str, *, port: int) -> None:
        self._app = app
        self._key = key
        # Browsers send the cookies of a host to all of its ports.
        self._cookie = f"nat_ui_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        if scope["type"] != "http":
            return
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get(KEY)
        if given is not None and self._is_key(given):
            rest = urlencode([(name, value) for name, value in query if name != KEY])
            await _send(guarded, HTTPStatus.SEE_OTHER, b"", *self._entry(scope["raw_path"], rest))
        elif scope["method"] in _READING and self._is_key(self._kept(scope)):
            await self._app(scope, receive, guarded)
        else:
            await _send(guarded, HTTPStatus.FORBIDDEN, _REFUSED, (b"content-type", b"text/plain; charset=utf-8"))

    def _entry(self, path: bytes, query: str) -> tuple[tuple[bytes, bytes], ...]:
        """Headers that keep the key and lead to the same page without it, so that it stays out of the history."""
        cookie = f"{self._cookie}={self._key}; HttpOnly; SameSite=Lax; Path=/"
        own = b"/" + path.lstrip(b"/\\")  # `//host` would lead elsewhere, and browsers read `\` as `/`
        return (b"location", own + (f"?{query}".encode() if query else b"")), (b"set-cookie", cookie.encode())

    def _kept(self, scope: Scope) -> str:
        # The standard library's parser stops at a cookie of another local program that has, for example, brackets.
        return cookie_parser(header(scope, b"cookie").decode("latin-1")).get(self._cookie, "")

    def _is_key(self, given: str) -> bool:
        return same_key(given.encode("utf-8", "replace"), self._key.encode())


async def _send(send: Send, status: HTTPStatus, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status.value, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
