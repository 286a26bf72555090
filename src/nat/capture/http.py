"""httpx clients that record their calls with a tap; to the agent they behave like any other client."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from nat.capture.request import is_call_route
from nat.capture.response import ResponseFilter
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
        response = self.response
        if not response.is_success:
            self._attempt.refused(response.status_code, response.content)
        elif self._stream:
            assert isinstance(response.stream, (httpx.AsyncByteStream, httpx.SyncByteStream))
            response.stream = _RecordedStream(response.stream, _Recording(self._attempt, response))
        else:
            return _recorded(response, self._attempt)
        return response

    def _with_body(self, body: bytes) -> httpx.Request:
        """Replace the body."""
        self._request.stream = httpx.ByteStream(body)
        self._request.headers["Content-Length"] = str(len(body))
        return self._request


class _Recording:
    """A response in pieces: each is passed on as it comes, and the call is recorded at the end."""

    def __init__(self, attempt: Attempt, response: httpx.Response) -> None:
        self.attempt = attempt
        self._events = "text/event-stream" in response.headers.get("Content-Type", "")
        self._chunks: list[bytes] = []
        self._filter = ResponseFilter(attempt.hidden, events=self._events)

    def feed(self, chunk: bytes) -> bytes:
        """The part of the response that the agent gets after this chunk."""
        self._chunks.append(chunk)
        return self._filter.feed(chunk)

    def end(self) -> bytes:
        """Record the call; returns the rest of the agent's response."""
        self.attempt.answered(b"".join(self._chunks), events=self._events)
        return self._filter.end()


class _RecordedStream(httpx.AsyncByteStream, httpx.SyncByteStream):
    """Passes each chunk on to the agent; the call is recorded when the stream ends or is closed."""

    def __init__(self, stream: httpx.AsyncByteStream | httpx.SyncByteStream, recording: _Recording) -> None:
        self._stream = stream
        self._recording = recording

    @property
    def elapsed(self) -> timedelta | None:
        """The response reads its duration here, if its library does not set it."""
        return getattr(self._stream, "elapsed", None)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        assert isinstance(self._stream, httpx.AsyncByteStream), "an asynchronous client's stream"
        chunks = aiter(self._stream)
        with _failure_recorded(self._recording.attempt):
            try:
                async for chunk in chunks:
                    if visible := self._recording.feed(chunk):
                        yield visible
            finally:
                if isinstance(chunks, AsyncGenerator):
                    await chunks.aclose()
        if rest := self._recording.end():
            yield rest

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx.AsyncByteStream), "an asynchronous client's stream"
        self._recording.end()
        await self._stream.aclose()

    def __iter__(self) -> Generator[bytes, None, None]:
        assert isinstance(self._stream, httpx.SyncByteStream), "a blocking client's stream"
        with _failure_recorded(self._recording.attempt):
            for chunk in self._stream:
                if visible := self._recording.feed(chunk):
                    yield visible
        if rest := self._recording.end():
            yield rest

    def close(self) -> None:
        assert isinstance(self._stream, httpx.SyncByteStream), "a blocking client's stream"
        self._recording.end()
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


def _recorded(response: httpx.Response, attempt: Attempt) -> httpx.Response:
    """A response that was read whole, as the agent sees it."""
    recording = _Recording(attempt, response)
    body = recording.feed(response.content) + recording.end()
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
