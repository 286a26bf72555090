"""The tap on an httpx client: what is sent through it is recorded; to the agent it is a client like any other.

It takes hold of `send`, which every request passes, and not of the transport: there the answer is decompressed, and
proxies from the environment go on working.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Any

from nat.capture.library import httpx
from nat.capture.loops import LoopClients
from nat.capture.request import is_call_route
from nat.capture.response_filter import ResponseFilter
from nat.capture.tap import Attempt, Tap
from nat.errors import describe_error

_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200)
"""As many as a whole epoch may have in flight; httpx's own 100 would queue rollouts unseen."""
_OF_THE_BODY = frozenset({b"content-length", b"content-encoding", b"transfer-encoding"})


class CapturingAsyncClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` whose calls of completions routes are recorded by a tap; for any number of event loops."""

    def __init__(self, tap: Tap, **options: Any) -> None:
        options = {"limits": _CONNECTIONS, "follow_redirects": True, **options}
        super().__init__(**options)
        self._tap = tap
        self._loops = LoopClients(options)

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        attempt = self._tap.open(request.url.path, await request.aread()) if _is_call(request) else None
        if attempt is None:
            return await self._carry(request, stream=stream, **options)
        try:
            request.headers.update(attempt.headers)
            _prepare(request, attempt.body, stream=stream)
            response = await self._carry(request, stream=stream, **options)
            if response.is_error:
                body = attempt.body_without_refused(response.status_code, await response.aread())
                if body is not None:
                    _prepare(request, body, stream=stream)
                    response = await self._carry(request, stream=stream, **options)
            if response.is_error:
                await response.aread()
        except (Exception, asyncio.CancelledError) as error:
            attempt.failed(describe_error(error))
            raise
        if response.is_error:
            attempt.refused(response.status_code, response.content)
        elif stream:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _RecordedAsyncStream(response.stream, _Recording(attempt, response))
        else:
            response = _recorded(response, attempt)
        return response

    async def _carry(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send as it is, over a connection of the running event loop."""
        elsewhere = self._loops.elsewhere()
        if elsewhere is None:
            return await super().send(request, **options)
        return await elsewhere.send(request, **options)


class CapturingClient(httpx.Client):
    """The same for code that blocks."""

    def __init__(self, tap: Tap, **options: Any) -> None:
        super().__init__(**{"limits": _CONNECTIONS, "follow_redirects": True, **options})
        self._tap = tap

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        attempt = self._tap.open(request.url.path, request.read()) if _is_call(request) else None
        if attempt is None:
            return super().send(request, stream=stream, **options)
        try:
            request.headers.update(attempt.headers)
            _prepare(request, attempt.body, stream=stream)
            response = super().send(request, stream=stream, **options)
            if response.is_error:
                body = attempt.body_without_refused(response.status_code, response.read())
                if body is not None:
                    _prepare(request, body, stream=stream)
                    response = super().send(request, stream=stream, **options)
            if response.is_error:
                response.read()
        except Exception as error:
            attempt.failed(describe_error(error))
            raise
        if response.is_error:
            attempt.refused(response.status_code, response.content)
        elif stream:
            assert isinstance(response.stream, httpx.SyncByteStream)
            response.stream = _RecordedStream(response.stream, _Recording(attempt, response))
        else:
            response = _recorded(response, attempt)
        return response


class _Recording:
    """An answer in the pieces that it comes in: shown as they come, recorded when they are over."""

    def __init__(self, attempt: Attempt, response: httpx.Response) -> None:
        self.attempt = attempt
        self._events = "text/event-stream" in response.headers.get("Content-Type", "")
        self._chunks: list[bytes] = []
        self._filter = ResponseFilter(attempt.hidden, events=self._events)

    def feed(self, chunk: bytes) -> bytes:
        """What the agent is shown with this chunk."""
        self._chunks.append(chunk)
        return self._filter.feed(chunk)

    def over(self) -> bytes:
        """What it is shown at the end."""
        self.attempt.answered(b"".join(self._chunks), events=self._events)
        return self._filter.end()


class _RecordedAsyncStream(httpx.AsyncByteStream):
    """Hands each chunk on as the agent is shown it; the call is recorded when the stream ends or is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, recording: _Recording) -> None:
        self._stream = stream
        self._recording = recording

    @property
    def elapsed(self) -> timedelta | None:
        """The response reads its duration here, if its library does not set it."""
        return getattr(self._stream, "elapsed", None)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        chunks = aiter(self._stream)
        try:
            async for chunk in chunks:
                if shown := self._recording.feed(chunk):
                    yield shown
        except (Exception, asyncio.CancelledError) as error:
            self._recording.attempt.failed(describe_error(error))
            raise
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
        if rest := self._recording.over():
            yield rest

    async def aclose(self) -> None:
        self._recording.over()
        await self._stream.aclose()


class _RecordedStream(httpx.SyncByteStream):
    """The same for code that blocks."""

    def __init__(self, stream: httpx.SyncByteStream, recording: _Recording) -> None:
        self._stream = stream
        self._recording = recording

    @property
    def elapsed(self) -> timedelta | None:
        """The response reads its duration here, if its library does not set it."""
        return getattr(self._stream, "elapsed", None)

    def __iter__(self) -> Generator[bytes, None, None]:
        try:
            for chunk in self._stream:
                if shown := self._recording.feed(chunk):
                    yield shown
        except Exception as error:
            self._recording.attempt.failed(describe_error(error))
            raise
        if rest := self._recording.over():
            yield rest

    def close(self) -> None:
        self._recording.over()
        self._stream.close()


def _is_call(request: httpx.Request) -> bool:
    return request.method == "POST" and is_call_route(request.url.path)


def _prepare(request: httpx.Request, body: bytes, *, stream: bool) -> None:
    """Give the request another body; of a stream, ask for the bytes as they are, since they are read as they come."""
    request.stream = httpx.ByteStream(body)
    request.headers["Content-Length"] = str(len(body))
    if stream:
        request.headers["Accept-Encoding"] = "identity"


def _recorded(response: httpx.Response, attempt: Attempt) -> httpx.Response:
    """An answer that was read, as the agent is shown it."""
    recording = _Recording(attempt, response)
    body = recording.feed(response.content) + recording.over()
    if not attempt.hidden:
        return response
    shown = httpx.Response(
        response.status_code,
        headers=[pair for pair in response.headers.raw if pair[0].lower() not in _OF_THE_BODY],
        content=body,
        request=response.request,
        extensions=response.extensions,
        history=response.history,
    )
    with contextlib.suppress(RuntimeError):  # a transport that answers from memory took no time
        shown.elapsed = response.elapsed
    return shown
