"""Answer only requests that name this server as their host.

A web page may give its own name the address of this machine (DNS rebinding), and then a browser lets it read what a
server there answers. Such a request carries the page's name as its host.
"""

from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nat.asgi.refusal import refusal_body
from nat.wire.hosts import is_loopback


@dataclass(frozen=True)
class HostNames:
    """Names under which a server may be called."""

    bound: str
    """The host that it listens on. One that others can reach has a key that its owner chose, which no page knows."""
    allowed: Collection[str] = ()
    """Further names, such as that of a proxy; with them a server that others can reach has no other names either."""

    def know(self, host_header: str) -> bool:
        name = _name(host_header)
        if is_loopback(name) or name in self.allowed or name == self.bound.strip("[]").lower():
            return True
        return not self.allowed and not is_loopback(self.bound)


class HostCheck:
    """An application that is asked only under the names of its server."""

    def __init__(self, app: ASGIApp, names: HostNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = Headers(scope=scope).getlist("host")
        if len(told) == 1 and self._names.know(told[0]):
            await self._app(scope, receive, send)
            return
        message = (
            f"this server is not called {', '.join(told) or 'nothing'}: use localhost, or the name of its address; "
            "its owner can name others with --allowed_hosts"
        )
        answer = Response(refusal_body(message), HTTPStatus.MISDIRECTED_REQUEST, media_type="application/json")
        await answer(scope, receive, send)


def _name(host_header: str) -> str:
    """The host without its port and without the dot that ends a full name; what is no port belongs to the name."""
    host = host_header.strip().lower()
    name, _, port = host.rpartition(":")
    name = name if name and not port.strip("0123456789") else host
    return name.strip("[]").removesuffix(".")
