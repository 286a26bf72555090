"""A transport for httpx over plain HTTP/1.1: a tenth of the cost per chunk of httpx's own transport.

A model streams an event for each token, so the cost of a call is the cost of its chunks. The parser is that of
httptools, which the gateway's server needs anyway. TLS and proxies are left to httpx's transport.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import httptools

from nat.capture.library import httpx

_MOST_WAITING = 2**20
"""Bytes of a response that wait for a slow reader before reading from the server pauses."""

_MOST_HEADERS = 2**20
"""Bytes of a response's headers, trailers and chunk extensions; a server may send no end of them."""

Headers = list[tuple[bytes, bytes]]


class PlainTransport(httpx.AsyncBaseTransport):
    """Keeps connections open and reuses the last used one first; for one event loop."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int], list[_Connection]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response's head; its body is read as it comes."""
        place = (request.url.host, request.url.port or 80)
        assert isinstance(request.stream, httpx.AsyncByteStream), "an asynchronous client sends asynchronously"
        content = _as_bytes(request, b"".join([part async for part in request.stream]))
        idle = self._idle.setdefault(place, [])
        while True:
            kept = _last_open(idle)
            connection = kept or await _connect(*place)
            try:
                await connection.send(content)
            except httpx.RemoteProtocolError:
                if kept is None or connection.heard:
                    raise
                continue  # the server had closed it already, so it has not seen the request
            return httpx.Response(connection.status, headers=connection.headers, stream=_Body(connection, idle))

    async def aclose(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


class _Body(httpx.AsyncByteStream):
    """The body of a response; its connection is kept if it was read to its end."""

    def __init__(self, connection: "_Connection", idle: list["_Connection"]) -> None:
        self._connection = connection
        self._idle = idle

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._connection.read()) is not None:
            yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, _CLOSED
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()


class _Connection(asyncio.Protocol):
    """One request at a time, and its response."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._waiting = self._head_bytes = 0
        self._paused = False
        self._reader: asyncio.Future[None] | None = None
        self._error: str | None = None
        self._has_head = self._complete = self._keeps = False
        self.heard = False
        """Some bytes of the response have come."""
        self.headers: Headers = []

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    @property
    def reusable(self) -> bool:
        return self._complete and not self._lost and self._error is None and self._keeps

    @property
    def open(self) -> bool:
        return not self._lost

    async def send(self, content: bytes) -> None:
        """Send a request and wait for the head of its response; RemoteProtocolError if there is none."""
        self._begin()
        assert self._transport is not None, "it is connected"
        try:
            self._transport.write(content)
            while not self._has_head:
                await self._more()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes | None:
        """All bytes of the body that came since the last call; None after the end."""
        while not self._pieces:
            if self._complete:
                return None
            await self._more()
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._waiting = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    def close(self) -> None:
        self._lost = True
        if self._transport is not None:
            self._transport.close()

    async def _more(self) -> None:
        """Wait for data, an error or the end."""
        if self._error is not None:
            raise httpx.RemoteProtocolError(self._error)
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has only the methods

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = f"the response is not HTTP: {error}"
            self.close()
        if self._head_bytes > _MOST_HEADERS and not self._complete:
            self._error = f"the response has more than {_MOST_HEADERS} bytes of headers"
            self.close()
        self._wake()

    def connection_lost(self, _: Exception | None) -> None:
        self._lost = True
        if self._has_head and _ends_with_connection(self.headers):
            self._complete = True
        elif not self._complete:
            self._error = self._error or "the server closed the connection before its response was complete"
        self._wake()

    # ---- callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.status >= httpx.codes.OK:  # informational responses (1xx) come before the real one
            self._has_head, self._keeps = True, bool(self._parser.should_keep_alive())
        else:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._head_bytes = 0
        self._waiting += len(body)
        if self._waiting > _MOST_WAITING and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._complete = self._has_head


_CLOSED = _Connection()
"""Stands for a connection that was returned to the pool."""


async def _connect(host: str, port: int) -> _Connection:
    try:
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port)
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error
    return connection


def _last_open(idle: list[_Connection]) -> _Connection | None:
    while idle:
        connection = idle.pop()
        if connection.open:
            return connection
    return None


def _as_bytes(request: httpx.Request, body: bytes) -> bytes:
    lines = [request.method.encode() + b" " + request.url.raw_path + b" HTTP/1.1"]
    lines += (name + b": " + value for name, value in request.headers.raw)
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise httpx.LocalProtocolError("a header contains a line break")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _ends_with_connection(headers: Headers) -> bool:
    """True if the body has neither a length nor chunks, so that the end of the connection ends it."""
    return {b"content-length", b"transfer-encoding"}.isdisjoint(name.lower() for name, _ in headers)
