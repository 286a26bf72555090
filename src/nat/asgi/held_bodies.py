"""How much memory the bodies of all requests take together, until they are answered.

Each request has a limit of its own; a thousand of them at once are not bounded by it.
"""

from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nat.asgi.refusal import refusal_body

MOST_BYTES = 2**30


class HeldBodies:
    """An application whose requests hold at most so many bytes; the one that brings more is refused, to come again."""

    def __init__(self, app: ASGIApp, *, most_bytes: int = MOST_BYTES) -> None:
        self._app = app
        self._most = most_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held, begun, refused = 0, False, False

        async def counted() -> Message:
            nonlocal held, refused
            message = {"type": "http.disconnect"} if refused else await receive()
            size = len(message.get("body", b""))
            if size and self._held + size > self._most:
                refused = True
                if not begun:
                    await self._refusal()(scope, receive, send)
                return {"type": "http.disconnect"}
            held += size
            self._held += size
            return message

        async def heard(message: Message) -> None:
            nonlocal begun
            begun = True
            if not refused:
                await send(message)

        try:
            await self._app(scope, counted, heard)
        finally:
            self._held -= held

    def _refusal(self) -> Response:
        message = f"the requests that are under way have {self._most} bytes together, and there is no room for more"
        headers = {"retry-after": "1", "connection": "close"}
        return Response(refusal_body(message), HTTPStatus.SERVICE_UNAVAILABLE, headers, "application/json")
