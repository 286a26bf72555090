"""httpx clients that record their calls with a tap; to the agent they behave like any other client.

They override `send`, which every request passes, and not the transport: so responses are decompressed already, and
proxies from the environment keep working.
"""

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncGenerator, Generator, Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

from nat.capture.library import httpx
from nat.capture.request import is_call_route
from nat.capture.response import ResponseFilter
from nat.capture.tap import Attempt, Tap
from nat.errors import describe_error

_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200)
"""As many as a whole epoch may have in flight; httpx's own 100 would queue rollouts unseen."""
_KEEP_NONE = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection that stays open would outlive its loop and could no longer be closed."""
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
            return await self._send_on_loop(request, stream=stream, **options)
        exchange = _Exchange(attempt, request, stream=stream)
        with _failure_recorded(attempt):
            for each in exchange.requests():
                response = await self._send_on_loop(each, stream=stream, **options)
                if response.is_error:
                    await response.aread()
                exchange.response = response
        return exchange.recorded()

    async def _send_on_loop(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send the request unchanged, over a connection of the running event loop."""
        client = self._loops.of_running_loop()
        if client is None:
            return await super().send(request, **options)
        return await client.send(request, **options)


class CapturingClient(httpx.Client):
    """An `httpx.Client` whose calls of completions routes are recorded by a tap; for blocking code."""

    def __init__(self, tap: Tap, **options: Any) -> None:
        super().__init__(**{"limits": _CONNECTIONS, "follow_redirects": True, **options})
        self._tap = tap

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        attempt = self._tap.open(request.url.path, request.read()) if _is_call(request) else None
        if attempt is None:
            return super().send(request, stream=stream, **options)
        exchange = _Exchange(attempt, request, stream=stream)
        with _failure_recorded(attempt):
            for each in exchange.requests():
                response = super().send(each, stream=stream, **options)
                if response.is_error:
                    response.read()
                exchange.response = response
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
        self._request.headers.update(self._attempt.headers)
        yield self._with_body(self._attempt.body)
        if self.response.is_error:
            body = self._attempt.body_without_refused(self.response.status_code, self.response.content)
            if body is not None:
                yield self._with_body(body)

    def recorded(self) -> httpx.Response:
        """The response without the fields that only the recording requested."""
        response = self.response
        if response.is_error:
            self._attempt.refused(response.status_code, response.content)
        elif self._stream:
            assert isinstance(response.stream, (httpx.AsyncByteStream, httpx.SyncByteStream))
            response.stream = _RecordedStream(response.stream, _Recording(self._attempt, response))
        else:
            return _recorded(response, self._attempt)
        return response

    def _with_body(self, body: bytes) -> httpx.Request:
        """Replace the body; a stream is requested uncompressed, since its bytes are read as they come."""
        self._request.stream = httpx.ByteStream(body)
        self._request.headers["Content-Length"] = str(len(body))
        if self._stream:
            self._request.headers["Accept-Encoding"] = "identity"
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
    except (Exception, asyncio.CancelledError) as error:
        attempt.failed(describe_error(error))
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


class LoopClients:
    """One client per event loop except the owner's, since a connection cannot be used by another loop.

    Frameworks with a blocking call (`run_sync`) run it in a loop of the calling thread, which ends with the call.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        """`options` are the owner's."""
        self._options = options
        self._home = _running_loop()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def of_running_loop(self) -> httpx.AsyncClient | None:
        """The client of the running loop; None if that is the owner's loop."""
        loop = asyncio.get_running_loop()
        if loop is self._home:
            return None
        client = self._clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(**{"verify": _certificates(), **self._options, "limits": _KEEP_NONE})
            self._clients[loop] = client
        return client


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once, as it takes 25 ms and each blocking run has its own loop."""
    return httpx.create_ssl_context()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
