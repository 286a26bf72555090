"""What a connection shows of its client: a key keeps its place, a 401 ends it."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from nat.http.asgi import App, Message, Receive, Scope, Send

_STATE = "nat.visitor"


@dataclass
class Visitor:
    """The client of one connection."""

    has_key: bool = False
    """Its key was accepted once, so its connection keeps its place."""

    def enters(self, state: dict[str, Any]) -> None:
        """Let the checks of a request find this, by the state of its scope."""
        state[_STATE] = self


def key_accepted(scope: Scope) -> None:
    """Note that a request came with a key of this server."""
    if (visitor := _of(scope)) is not None:
        visitor.has_key = True


class CloseRefused:
    """Middleware that ends the connection of each 401, once its request is read, and tells the client so."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unread = True

        async def noted() -> Message:
            nonlocal unread
            message = await receive()
            unread = message.get("more_body", False)
            return message

        async def closing(message: Message) -> None:
            if message.get("status") == HTTPStatus.UNAUTHORIZED:
                while unread:  # a client that still sends would see a broken connection, and no 401
                    await noted()
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._app(scope, noted, closing)


def _of(scope: Scope) -> Visitor | None:
    found = scope.get("state", {}).get(_STATE)
    return found if isinstance(found, Visitor) else None
