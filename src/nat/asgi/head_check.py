"""Refuse a request by what its head says, before anything of it is read."""

from collections.abc import Callable

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Objection = Callable[[HTTPConnection], Response | None]
"""Gives the answer to a request that is not let in, None for one that is."""


class HeadCheck:
    """Middleware that asks `objection` about every request."""

    def __init__(self, app: ASGIApp, *, objection: Objection) -> None:
        self._app = app
        self._objection = objection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._objection(HTTPConnection(scope)) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)
