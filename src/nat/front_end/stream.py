"""A streamed response whose work is cancelled when the client closes the connection."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from nat.http.asgi import EVENT_STREAM, Receive, Scope, Send, cancel_and_wait, cancel_on_disconnect
from nat.http.errors import ClientDisconnected

Emit = Callable[[Any], None]
"""Adds the next item to the response; thread-safe."""
Encode = Callable[[Any], bytes]

_END = object()


class Stream(Response):
    """A response that streams the items of `work` in order, as they come."""

    media_type = EVENT_STREAM

    def __init__(self, work: Callable[[Emit], Awaitable[None]], encode: Encode) -> None:
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._work = work
        self._encode = encode

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        loop, items = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def emit(item: Any) -> None:
            # Items from the loop's own thread take the same way, which keeps the order.
            with contextlib.suppress(RuntimeError):  # the loop is closed, so the client has gone
                loop.call_soon_threadsafe(items.put_nowait, item)

        async def produce() -> None:
            try:
                await self._work(emit)
            finally:
                emit(_END)

        work, sending = asyncio.create_task(produce()), asyncio.create_task(self._send(items, send))
        try:
            await cancel_on_disconnect(receive, sending)
            await sending
            await work
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientDisconnected:
            pass
        finally:
            await cancel_and_wait(work, sending)

    async def _send(self, items: asyncio.Queue[Any], send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        while True:
            waiting = [await items.get()]
            while not items.empty():
                waiting.append(items.get_nowait())
            body = b"".join(self._encode(item) for item in waiting if item is not _END)
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if waiting[-1] is _END:
                return
