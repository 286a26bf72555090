"""uvicorn's connection with limits: how much a client may send before its body, how slowly, on how many connections."""

import asyncio
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nat.http.errors import ApiError
from nat.http.limits import ConnectionLimits
from nat.http.timer import LoopTimer
from nat.http.visitor import Visitor


class Connection(HttpToolsProtocol):
    """One client's connection; a client that exceeds a limit gets an error and is disconnected."""

    def __init__(self, *, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._max_connections = limits.max_connections
        self._visitor = Visitor()
        self._deadline: LoopTimer | None = None
        self._unread: LoopTimer | None = None
        self._in_head = self._in_body = self._upgrades = False
        self._running: RequestResponseCycle | None = None
        """The request that is answered; `cycle` is the last one that came, which may wait behind it."""
        self._piece_bytes = self._head_bytes = self._fields_bytes = self._received = self._credited = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.opened = self.loop.time()
        if len(self.connections) > self._max_connections and not self._take_place():
            message = f"this server has {self._max_connections} connections and takes no more"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, message)
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Parse in pieces, so that the limits hold whatever the size of a read."""
        for start in range(0, len(data), _PIECE_BYTES):
            if self.transport.is_closing():
                return
            if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
                self._expect_head()
            piece = data[start : start + _PIECE_BYTES]
            self._piece_bytes = len(piece)
            super().data_received(piece)
            self._head_bytes = max(0, self._head_bytes + len(piece))
            if (self._in_head or self._in_body) and self._head_bytes > self._limits.head_bytes:
                self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._visitor.enters(self.scope["state"])
        self._in_head, self._head_bytes, self._fields_bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # with its colon, space and line break
        # Trailers are dropped: a proxy may not have checked them as it checks headers.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head, self._in_body, self._head_bytes = False, True, -self._piece_bytes
        # The parser takes what follows such headers for the next request, not for a body.
        self._upgrades = self.parser.should_upgrade() and any(name in _OF_BODIES for name, _ in self.headers)
        if self._upgrades:
            raise ValueError("a body after an upgrade")  # the parser ends with it
        self._expect_body()
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle

    def on_chunk_header(self) -> None:
        """Not the size of a chunk counts, but what stands beside it."""
        self._head_bytes -= _CHUNK_HEAD_BYTES

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._received += len(body)
        self._head_bytes -= len(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._running = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self._in_head and self._deadline is None and not self.transport.is_closing():
            self._expect_head()  # of the next request, which began before this response ended

    def send_400_response(self, msg: str) -> None:
        if self._fields_bytes > self._limits.head_bytes:
            self._refuse_head()
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, _NO_UPGRADE if self._upgrades else msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = LoopTimer(self.loop, self._limits.unread_seconds, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _take_place(self) -> bool:
        """Have a place, if need be that of the oldest connection that waits for a request and never showed a key."""
        others: Iterable[Any] = self.connections
        opened = [each for each in others if isinstance(each, Connection) and not each.transport.is_closing()]
        if len(opened) <= self._max_connections:
            return True
        spare = [each for each in opened if each is not self and each.spare]
        if spare:
            min(spare, key=lambda each: each.opened).transport.abort()
        return bool(spare)

    @property
    def spare(self) -> bool:
        """True if a client without a key has no request in progress here."""
        busy = self._in_body or (self.cycle is not None and not self.cycle.response_complete)
        return not (busy or self._visitor.has_key)

    def _count(self, size: int) -> None:
        self._fields_bytes += size
        if self._fields_bytes > self._limits.head_bytes:
            raise ValueError("too many headers")  # the parser ends with it

    def _refuse_head(self) -> None:
        message = f"the headers have more than {self._limits.head_bytes} bytes"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)

    def _expect_head(self) -> None:
        self._deadline = LoopTimer(self.loop, self._limits.head_seconds, partial(self._too_slow, "headers"))

    def _expect_body(self) -> None:
        self._received = self._credited = 0
        self._deadline = LoopTimer(self.loop, self._limits.body_seconds, self._check_body)

    def _check_body(self) -> None:
        """Extend the deadline if the body comes fast enough, or if the application has not read it yet."""
        seconds = (self._received - self._credited) / self._limits.body_rate
        if self.flow.read_paused:
            seconds = max(seconds, self._limits.body_seconds)
        if seconds < _MIN_WAIT_SECONDS:
            self._too_slow("body")
            return
        self._credited = self._received
        self._deadline = LoopTimer(self.loop, seconds, self._check_body)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self, part: str) -> None:
        self._deadline = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {part} of this request did not come in time")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Send the error if no response has begun, then close the connection, at once if the client does not read."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_raw_response(status, ApiError(message, status=status).json()))
        self.transport.close()
        LoopTimer(self.loop, _LINGER_SECONDS, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


_OF_BODIES = (b"content-length", b"transfer-encoding")
_NO_UPGRADE = "this server speaks HTTP/1.1 only: send a request with a body without the header Upgrade"
_MIN_WAIT_SECONDS = 0.01
_PIECE_BYTES = 2**14
_CHUNK_HEAD_BYTES = 16
"""A chunk's size in hexadecimal, and its line breaks."""
_LINGER_SECONDS = 1.0
"""Seconds for the client to read the error before the connection is closed."""


def _raw_response(status: HTTPStatus, body: bytes) -> bytes:
    """A whole HTTP/1.1 response, after which the connection is closed."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
