"""uvicorn's connection with limits: how much a client may send before its body, how slowly, on how many connections."""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nat.http.errors import ApiError
from nat.http.limits import ConnectionLimits


class Connection(HttpToolsProtocol):
    """One client's connection; a client that exceeds a limit gets an error and is disconnected."""

    def __init__(self, *, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._max_connections = limits.max_connections
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._in_head = self._in_body = False
        self._piece_bytes = self._head_bytes = self._received = self._credited = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            message = f"this server has {self._max_connections} connections and takes no more"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, message)
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        self._piece_bytes = len(data)
        self._head_bytes += len(data)
        super().data_received(data)
        if (self._in_head or self._in_body) and self._head_bytes > self._limits.head_bytes:
            most = self._limits.head_bytes
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers have more than {most} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, self._piece_bytes

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are dropped: a proxy may not have checked them as it checks headers.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head, self._in_body, self._head_bytes = False, True, 0
        self._expect_body()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._received += len(body)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_head and self._deadline is None and not self.transport.is_closing():
            self._expect_head()  # of the next request, which began before this response ended

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.unread_seconds, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self._limits.head_seconds, self._too_slow, "headers")

    def _expect_body(self) -> None:
        self._received = self._credited = 0
        self._deadline = self.loop.call_later(self._limits.body_seconds, self._check_body)

    def _check_body(self) -> None:
        """Extend the deadline if the body comes fast enough, or if the application has not read it yet."""
        seconds = (self._received - self._credited) / self._limits.body_rate
        if self.flow.read_paused:
            seconds = max(seconds, self._limits.body_seconds)
        if seconds < _MIN_WAIT_SECONDS:
            self._too_slow("body")
            return
        self._credited = self._received
        self._deadline = self.loop.call_later(seconds, self._check_body)

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
        self.loop.call_later(_LINGER_SECONDS, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


_MIN_WAIT_SECONDS = 0.01
_LINGER_SECONDS = 1.0
"""Seconds for the client to read the error before the connection is closed."""


def _raw_response(status: HTTPStatus, body: bytes) -> bytes:
    """A whole HTTP/1.1 response, after which the connection is closed."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
