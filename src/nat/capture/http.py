"""httpx clients that record their calls with a tap; to the agent they behave like any other client."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from nat.capture.request import is_call_route
from nat.capture.response import error_text
from nat.capture.sdk import SDKAsyncClient, SDKClient, httpx
from nat.capture.tap import Attempt, Tap
from nat.capture.waiting import sent, sent_blocking
from nat.errors import describe_error

_OF_THE_BODY = frozenset({b"content-length", b"content-encoding", b"transfer-encoding"})


class CapturingAsyncClient(SDKAsyncClient):
    """An `httpx.AsyncClient` whose calls of completions routes are recorded by a tap."""

    def __init__(self, tap: Tap, **options: Any) -> None:
        super().__init__(**options)
        self._tap = tap

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        attempt = self._tap.open(request.url.path, await request.aread()) if _is_call(request) else None
        if attempt is None:
            return await super().send(request, stream=stream, **options)
        exchange, send = _Exchange(attempt, request, stream=stream), super().send
        with _failure_recorded(attempt):
            for each in exchange.requests():
                exchange.response = await sent(attempt.server, partial(send, each, stream=stream, **options))
        return exchange.recorded()


class CapturingClient(SDKClient):
    """The same for blocking code."""

    def __init__(self, tap: Tap, **options: Any) -> None:
        super().__init__(**options)
        self._tap = tap

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        attempt = self._tap.open(request.url.path, request.read()) if _is_call(request) else None
        if attempt is None:
            return super().send(request, stream=stream, **options)
        exchange, send = _Exchange(attempt, request, stream=stream), super().send
        with _failure_recorded(attempt):
            for each in exchange.requests():
                exchange.response = sent_blocking(attempt.server, partial(send, each, stream=stream, **options))
        return exchange.recorded()


class _Exchange:
    """One recorded call: the requests to send, and the response for the agent. The two clients do the sending."""

    response: httpx.Response
    """The last response; its body was read if it is an error."""

    def __init__(self, attempt: Attempt, request: httpx.Request, *, stream: bool) -> None:
        self._attempt = attempt
        self._request = request
        self._stream = stream

    def requests(self) -> Iterator[httpx.Request]:
        """The request, and once more without a field that the server refused."""
        # A stream is recorded and passed on as its bytes come.
        self._request.headers.update({**self._attempt.headers, "Accept-Encoding": "identity"})
        yield self._with_body(self._attempt.body)
        if self.response.is_error:
            body = self._attempt.body_without_refused(self.response.status_code, self.response.content)
            if body is not None:
                yield self._with_body(body)

    def recorded(self) -> httpx.Response:
        """The response without the fields that only the recording requested."""
        response, attempt = self.response, self._attempt
        if not response.is_success:
            attempt.failed(error_text(response.content), status=response.status_code)
            return response
        attempt.begin(events="text/event-stream" in response.headers.get("Content-Type", ""))
        if not self._stream:
            return _visible(response, attempt)
        assert isinstance(response.stream, (httpx.AsyncByteStream, httpx.SyncByteStream))
        response.stream = _RecordedStream(response.stream, attempt)
        return response

    def _with_body(self, body: bytes) -> httpx.Request:
        """Replace the body."""
        self._request.stream = httpx.ByteStream(body)
        self._request.headers["Content-Length"] = str(len(body))
        return self._request


class _RecordedStream(httpx.AsyncByteStream, httpx.SyncByteStream):
    """Passes each chunk on to the agent; the call is recorded when the answer is complete, or the agent leaves."""

    def __init__(self, stream: httpx.AsyncByteStream | httpx.SyncByteStream, attempt: Attempt) -> None:
        self._stream = stream
        self._attempt = attempt

    @property
    def elapsed(self) -> timedelta | None:
        """The response reads its duration here, if its library does not set it."""
        return getattr(self._stream, "elapsed", None)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        assert isinstance(self._stream, httpx.AsyncByteStream), "an asynchronous client's stream"
        attempt, chunks = self._attempt, aiter(self._stream)
        close = partial(self._abandon, asyncio.get_running_loop())
        try:
            async for chunk in chunks:
                if visible := attempt.feed(chunk):
                    attempt.close = close
                    yield visible
                    attempt.close = None
            if rest := attempt.end():
                yield rest
        except Exception as error:
            if rest := attempt.lost(describe_error(error)):
                yield rest
            raise
        finally:
            attempt.left()
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx.AsyncByteStream), "an asynchronous client's stream"
        self._attempt.left()
        await self._stream.aclose()

    async def _abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what the agent has left, if its loop still runs; an error in this concerns nobody."""
        if loop is asyncio.get_running_loop():
            with contextlib.suppress(Exception):
                await self.aclose()

    def __iter__(self) -> Generator[bytes, None, None]:
        assert isinstance(self._stream, httpx.SyncByteStream), "a blocking client's stream"
        attempt = self._attempt
        try:
            for chunk in self._stream:
                if visible := attempt.feed(chunk):
                    yield visible
            if rest := attempt.end():
                yield rest
        except Exception as error:
            if rest := attempt.lost(describe_error(error)):
                yield rest
            raise
        finally:
            attempt.left()

    def close(self) -> None:
        assert isinstance(self._stream, httpx.SyncByteStream), "a blocking client's stream"
        self._attempt.left()
        self._stream.close()


@contextlib.contextmanager
def _failure_recorded(attempt: Attempt) -> Iterator[None]:
    """Record an error or a cancellation in the block as the end of the call."""
    try:
        yield
    except Exception as error:
        attempt.failed(describe_error(error))
        raise
    except asyncio.CancelledError as error:
        attempt.canceled(describe_error(error))
        raise


def _is_call(request: httpx.Request) -> bool:
    return request.method == "POST" and is_call_route(request.url.path)


def _visible(response: httpx.Response, attempt: Attempt) -> httpx.Response:
    """A response that was read whole, as the agent sees it."""
    body = attempt.feed(response.content) + attempt.end()
    if not attempt.hidden:
        return response
    visible = httpx.Response(
        response.status_code,
        headers=[pair for pair in response.headers.raw if pair[0].lower() not in _OF_THE_BODY],
        content=body,
        request=response.request,
        extensions=response.extensions,
        history=response.history,
    )
    with contextlib.suppress(RuntimeError):  # a transport that answers from memory took no time
        visible.elapsed = response.elapsed
    return visible
