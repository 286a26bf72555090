"""Between the event loop and the sampling engine: submit a request, wait for its answer, cancel it on disconnect."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request as HttpRequest

from nat.backend.inference.sequence import Delta, Request, Sequence
from nat.backend.sampling import SamplingEngine
from nat.errors import ModelNotServed
from nat.http.asgi import cancel_on_disconnect
from nat.http.errors import ApiError


class _Feed:
    """A `Listener` that queues deltas on the event loop that made it; at the end None, or an error."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[list[Delta] | ApiError | None] = asyncio.Queue()

    def on_deltas(self, deltas: list[Delta]) -> None:
        self._loop.call_soon_threadsafe(self.queue.put_nowait, deltas)

    def on_finished(self) -> None:
        self._loop.call_soon_threadsafe(self.queue.put_nowait, None)

    def on_failed(self, error: BaseException) -> None:
        failure = ApiError(f"sampling failed: {type(error).__name__}: {error}", status=500)
        if isinstance(error, ModelNotServed):
            failure = ApiError(str(error), status=404, param="model", code="model_not_found")
        self._loop.call_soon_threadsafe(self.queue.put_nowait, failure)


async def complete(engine: SamplingEngine, sequences: list[Sequence], http: HttpRequest, *, model: str) -> Request:
    """Wait until all sequences are finished; closing the connection cancels the request."""
    answer = asyncio.ensure_future(answered(engine, sequences, model=model))
    await cancel_on_disconnect(http.receive, answer)
    return answer.result()


async def answered(engine: SamplingEngine, sequences: list[Sequence], *, model: str) -> Request:
    """Wait until all sequences are finished, whoever is connected; canceling the task cancels the request."""
    feed = _Feed()
    request = Request(sequences, feed, model=model)
    engine.submit(request)
    try:
        if isinstance(error := await feed.queue.get(), ApiError):
            raise error
    finally:
        if not request.finished:
            engine.cancel(request)
    return request


def start_stream(
    engine: SamplingEngine, sequences: list[Sequence], *, model: str
) -> tuple[Request, AsyncIterator[list[Delta]]]:
    """Submit at once, so that a request that does not fit fails before the response's headers are sent."""
    feed = _Feed()
    request = Request(sequences, feed, stream=True, model=model)
    engine.submit(request)

    async def follow() -> AsyncIterator[list[Delta]]:
        try:
            while (item := await feed.queue.get()) is not None:
                if isinstance(item, ApiError):
                    raise item
                yield item
        finally:
            if not request.finished:
                engine.cancel(request)

    return request, follow()
