"""Middleware that refuses a request by its headers (host, key, origin) before its body is read."""

import base64
import hmac
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from nat.http.asgi import App, Receive, Scope, Send, Sender, header, headers
from nat.http.errors import ApiError
from nat.wire.hosts import is_loopback

Check = Callable[[Scope], ApiError | None]
"""Returns the error for a refused request; None if it may pass."""


class Guard:
    """Middleware that refuses every request for which `check` returns an error."""

    def __init__(self, app: App, check: Check) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None if scope["type"] == "lifespan" else self._check(scope)
        if error is None:
            await self._app(scope, receive, send)
        else:
            await Sender(send).error(error)


@dataclass(frozen=True)
class HostNames:
    """Host names under which clients may call a server."""

    bound: str
    """The host that it listens on. A public host always has a key of its owner's, which no web page knows."""
    allowed: Collection[str] = ()
    """Further names, such as that of a proxy. If set, a public server accepts no other names."""

    def match(self, host_header: str) -> bool:
        """Whether a request with this header is for this server."""
        name = _name(host_header)
        if is_loopback(name) or name in self.allowed or name == self.bound.strip("[]").lower():
            return True
        return not self.allowed and not is_loopback(self.bound)


@dataclass(frozen=True)
class HostCheck:
    """Refuse requests for another host.

    A web page may give its own name the address of this machine (DNS rebinding), and then a browser lets it read what
    a server there answers. Such a request carries the page's name as its host.
    """

    names: HostNames

    def __call__(self, scope: Scope) -> ApiError | None:
        """421 unless there is one `Host`, and it is a name of this server."""
        named = [value.decode("latin-1") for value in headers(scope, b"host")]
        if len(named) == 1 and self.names.match(named[0]):
            return None
        message = (
            f"this server does not accept the host name {', '.join(named) or '(none)'}: use localhost, or the name of "
            "its address; its owner can add others with --allowed_hosts"
        )
        return ApiError(message, status=HTTPStatus.MISDIRECTED_REQUEST)


@dataclass(frozen=True)
class KeyCheck:
    """Refuse requests without the key."""

    api_key: str = field(repr=False)
    hint: str
    """How a client sends the key."""
    paths: str = "/"
    """Paths that begin with this need the key."""
    basic: bool = False
    """Also accept the key as the password of Basic authentication, or in `X-API-Key`."""

    def __post_init__(self) -> None:
        if not self.api_key:
            raise ValueError("the server needs an API key")

    def __call__(self, scope: Scope) -> ApiError | None:
        """401 for a wrong or missing key."""
        if not scope["path"].startswith(self.paths):
            return None
        presented = bearer_token(scope)
        if presented is None:
            presented = (_basic_password(scope) or header(scope, b"x-api-key")) if self.basic else b""
        if same_key(presented, self.api_key.encode()):
            return None
        seen = "another key" if presented or header(scope, b"authorization") else "no Authorization header"
        message = f"this server needs its API key {self.hint}; got {seen}"
        return ApiError(message, status=HTTPStatus.UNAUTHORIZED, code="invalid_api_key")


@dataclass(frozen=True)
class OriginCheck:
    """Refuse requests from foreign web pages, by the browser's Origin header; for servers without an owner's key."""

    own_pages: bool
    """Accept this server's own pages, under loopback names and `allowed_hosts`."""
    allowed_hosts: Collection[str] = ()

    def __call__(self, scope: Scope) -> ApiError | None:
        """403 for another origin."""
        origin = header(scope, b"origin").decode("latin-1")
        if not origin or (self.own_pages and self._is_own(origin, header(scope, b"host").decode("latin-1"))):
            return None
        message = (
            f"this server has no key of its own, so it refuses web pages of other sites (Origin: {origin}); "
            "start it with a key to admit pages that send the key"
        )
        return ApiError(message, status=HTTPStatus.FORBIDDEN)

    def _is_own(self, origin: str, host: str) -> bool:
        """Host and origin must agree and be this server's, since any site can resolve its name to this machine."""
        page = urlsplit(origin)
        name = page.hostname or ""
        return page.netloc == host and (is_loopback(name) or name in self.allowed_hosts)


def bearer_token(scope: Scope) -> bytes | None:
    """The token of the Authorization header; None if it has another scheme, or is not there."""
    scheme, _, token = header(scope, b"authorization").partition(b" ")
    return token if scheme.lower() == b"bearer" else None


def same_key(presented: bytes, key: bytes) -> bool:
    """Compare in constant time, so that the duration reveals nothing about the key."""
    return hmac.compare_digest(presented, key)


def _basic_password(scope: Scope) -> bytes:
    """The password of Basic authentication, empty if there is none; the user's name does not matter."""
    scheme, _, encoded = header(scope, b"authorization").partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _name(host_header: str) -> str:
    """The host without its port and without the trailing dot of a fully qualified name."""
    host = host_header.strip().lower()
    name, _, port = host.rpartition(":")
    name = name if name and not port.strip("0123456789") else host
    return name.strip("[]").removesuffix(".")
