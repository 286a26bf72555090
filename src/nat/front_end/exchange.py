"""An answer for as long as its client is there: who hangs up cancels the work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
Emit = Callable[[Any], None]
"""Puts the next item into an answer; from any thread."""
Encode = Callable[[Any], bytes]

_END = object()


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def while_waited_for(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, once the request's body was read.

    Raises:
        ClientGone: the client went first; the work is cancelled.

    """
    async with _watched(request.receive) as gone:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGone
            return await task
        finally:
            await _ended(task)


class Stream(Response):
    """An answer whose items are produced by `work` and encoded one after the other as they come."""

    media_type = "text/event-stream"

    def __init__(
        self, work: Callable[[Emit], Awaitable[None]], encode: Encode, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", **(headers or {})})
        del self.headers["content-length"]
        self._work = work
        self._encode = encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        loop, items = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def emit(item: Any) -> None:
            # All items take this way, those of the loop's own thread too, so that their order stays.
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(items.put_nowait, item)

        async def produce() -> None:
            try:
                await self._work(emit)
            finally:
                emit(_END)

        async with _watched(receive) as gone:
            work, sending = asyncio.create_task(produce()), asyncio.create_task(self._send(items, send))
            try:
                await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    await sending
                    await work
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                await _ended(work, sending)

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


@contextlib.asynccontextmanager
async def _watched(receive: Receive) -> AsyncIterator["asyncio.Task[None]"]:
    """A task that is done when the client is gone."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.create_task(gone())
    try:
        yield task
    finally:
        await _ended(task)


async def _ended(*tasks: "asyncio.Future[Any]") -> None:
    """Cancelled, if they still went on, and over."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
