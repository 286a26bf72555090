"""httpx clients that record their calls with a tap; to the agent they behave like any other client."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from nat.capture.request import is_call_route
from nat.capture.response import error_text
from nat.capture.tap import Attempt, Tap
from nat.capture.transport import httpx, sent, sent_blocking
from nat.errors import describe_error
from nat.http.client import client_options

_OF_THE_BODY = frozenset({b"content-length", b"content-encoding", b"transfer-encoding"})
_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200)
"""As many as a whole epoch may have in flight; httpx's own 100 would queue rollouts unseen."""
_KEEP_NONE = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection that stays open would outlive its loop and could no longer be closed."""


class CapturingAsyncClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` for the OpenAI SDK, whose calls of completions routes are recorded by a tap.

    It works in any number of event loops, though a connection works in one only: frameworks with a blocking call
    (`run_sync`) run it in a loop of the calling thread, which ends with the call.
    """

    def __init__(self, tap: Tap | None, **options: Any) -> None:
        """Without a tap, nothing is recorded."""
        self._options = _sdk_options(**options)
        super().__init__(**self._options)
        self._tap = tap
        self._home: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._home = asyncio.get_running_loop()
        self._others: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        """Send the request, again while its server is away; an error is read also of a stream."""

        def send(each: httpx.Request) -> Awaitable[httpx.Response]:
            return self._send_once(each, stream=stream, **options)

        attempt = self._tap.open(request.url.path, await request.aread()) if self._tap and _is_call(request) else None
        if attempt is None:
            return await send(request)
        with _failure_recorded(attempt):
            response = await sent(attempt.server, send, _prepared(request, attempt))
            if response.is_error and (body := attempt.body_without_refused(response.status_code, response.content)):
                response = await sent(attempt.server, send, _with_body(request, body))
        return _recorded(response, attempt, stream=stream)

    async def _send_once(self, request: httpx.Request, *, stream: bool, **options: Any) -> httpx.Response:
        """Over a connection of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._home and loop not in self._others:
            self._others[loop] = httpx.AsyncClient(**{**self._options, "limits": _KEEP_NONE})
        send = super().send if loop is self._home else self._others[loop].send
        response = await send(request, stream=True, **options)
        if self.is_closed:  # while it was connecting, so that the pool does not know its connection
            await response.aclose()
            if (connection := response.extensions.get("network_stream")) is not None:
                await connection.aclose()
            raise RuntimeError("the client was closed during the request")
        try:
            if not stream or response.is_error:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class CapturingClient(httpx.Client):
    """The same for blocking code."""

    def __init__(self, tap: Tap, **options: Any) -> None:
        super().__init__(**_sdk_options(**options))
        self._tap = tap

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        def send(each: httpx.Request) -> httpx.Response:
            return self._send_once(each, stream=stream, **options)

        attempt = self._tap.open(request.url.path, request.read()) if _is_call(request) else None
        if attempt is None:
            return send(request)
        with _failure_recorded(attempt):
            response = sent_blocking(attempt.server, send, _prepared(request, attempt))
            if response.is_error and (body := attempt.body_without_refused(response.status_code, response.content)):
                response = sent_blocking(attempt.server, send, _with_body(request, body))
        return _recorded(response, attempt, stream=stream)

    def _send_once(self, request: httpx.Request, **options: Any) -> httpx.Response:
        response = super().send(request, **options)
        if response.is_error:
            response.read()
        return response


def _sdk_options(**options: Any) -> dict[str, Any]:
    """It follows redirects as the SDK's own client does."""
    return client_options(limits=_CONNECTIONS, follow_redirects=True, **options)


def _is_call(request: httpx.Request) -> bool:
    return request.method == "POST" and is_call_route(request.url.path)


def _prepared(request: httpx.Request, attempt: Attempt) -> httpx.Request:
    """The request as it is sent; uncompressed, as a stream is recorded and passed on as its bytes come."""
    request.headers.update({**attempt.headers, "Accept-Encoding": "identity"})
    return _with_body(request, attempt.body)


def _with_body(request: httpx.Request, body: bytes) -> httpx.Request:
    request.stream = httpx.ByteStream(body)
    request.headers["Content-Length"] = str(len(body))
    return request


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


def _recorded(response: httpx.Response, attempt: Attempt, *, stream: bool) -> httpx.Response:
    """The response without the fields that only the recording requested."""
    if not response.is_success:
        attempt.failed(error_text(response.content), status=response.status_code)
        return response
    attempt.begin(events="text/event-stream" in response.headers.get("Content-Type", ""))
    if stream:
        assert isinstance(response.stream, (httpx.AsyncByteStream, httpx.SyncByteStream))
        response.stream = _RecordedStream(response.stream, attempt)
        return response
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


class _RecordedStream(httpx.AsyncByteStream, httpx.SyncByteStream):
    """Passes each chunk on to the agent; the call is recorded when the answer is complete, or the agent leaves."""

    def __init__(self, stream: httpx.AsyncByteStream | httpx.SyncByteStream, attempt: Attempt) -> None:
        self._stream: Any = stream
        """Of the kind of its client, whose half of the methods is called."""
        self._attempt = attempt

    @property
    def elapsed(self) -> timedelta | None:
        """The response reads its duration here, if its library does not set it."""
        return getattr(self._stream, "elapsed", None)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
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
        self._attempt.left()
        await self._stream.aclose()

    async def _abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what the agent has left, if its loop still runs; an error in this concerns nobody."""
        if loop is asyncio.get_running_loop():
            with contextlib.suppress(Exception):
                await self.aclose()

    def __iter__(self) -> Generator[bytes, None, None]:
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
        self._attempt.left()
        self._stream.close()
