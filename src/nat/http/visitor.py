"""What a connection's requests have shown about its client: that it has a key, or that it was refused without one."""

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
    refused: bool = False
    """It got a 401, so its connection ends."""

    def enters(self, state: dict[str, Any]) -> None:
        """Let the checks of a request find this, by the state of its scope."""
        state[_STATE] = self


def key_accepted(scope: Scope) -> None:
    """Note that a request came with a key of this server."""
    if (visitor := _of(scope)) is not None:
        visitor.has_key = True


class NoteRefusals:
    """Middleware that notes each 401."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            if message.get("status") == HTTPStatus.UNAUTHORIZED and (visitor := _of(scope)) is not None:
                visitor.refused = True
            await send(message)

        await self._app(scope, receive, noted)


def _of(scope: Scope) -> Visitor | None:
    found = scope.get("state", {}).get(_STATE)
    return found if isinstance(found, Visitor) else None
