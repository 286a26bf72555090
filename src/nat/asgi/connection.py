"""uvicorn's connection with an end to its patience: what a client may send, how slowly, and how many there may be.

A client that opens a connection and says nothing costs a file descriptor, and there are about a thousand of them.
"""

import asyncio
import resource
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nat.asgi.refusal import raw_refusal


@dataclass(frozen=True)
class Patience:
    """Bounds of one connection, and their number."""

    head_seconds: float = 10.0
    """From the first byte of a request, or from the beginning of the connection, to the end of its headers."""
    head_bytes: int = 64 * 2**10
    """Of a request's headers, and of all else that is no body: what describes its chunks, and what follows them."""
    body_seconds: float = 30.0
    """For the body, and as much again as it takes at `body_rate`."""
    body_rate: float = 10_000.0
    """Bytes per second of the slowest client; a batch may have hundreds of megabytes."""
    unread_seconds: float = 120.0
    """How long an answer may wait for a client that does not read."""
    connections: int = 2000

    @property
    def most_connections(self) -> int:
        """No more than the process has file descriptors for, with some left for its files."""
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.connections if open_files == resource.RLIM_INFINITY else min(self.connections, open_files * 3 // 4)


class Connection(HttpToolsProtocol):
    """One client; whoever exceeds a bound is told so, as far as it listens, and cut off."""

    def __init__(self, *, patience: Patience, **options: Any) -> None:
        super().__init__(**options)
        self._patience = patience
        self._most = patience.most_connections
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._in_head = self._in_body = False
        self._piece_bytes = self._head_bytes = self._received = self._credited = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self._most:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"this server has {self._most} connections and takes no more")
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
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
        if (self._in_head or self._in_body) and self._head_bytes > self._patience.head_bytes:
            most = self._patience.head_bytes
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers have more than {most} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, self._piece_bytes

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a body in chunks is none: nobody has checked it, and a proxy may not have seen it.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._rest()
        self._in_head, self._in_body, self._head_bytes = False, True, 0
        self._expect_body()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._received += len(body)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self._rest()
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_head and self._deadline is None and not self.transport.is_closing():
            self._expect_head()  # of the next request, which began before this answer ended

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._patience.unread_seconds, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self._patience.head_seconds, self._too_slow, "headers")

    def _expect_body(self) -> None:
        self._received = self._credited = 0
        self._deadline = self.loop.call_later(self._patience.body_seconds, self._check_body)

    def _check_body(self) -> None:
        """Wait on for a body that comes fast enough, or that the application has not asked for yet."""
        seconds = (self._received - self._credited) / self._patience.body_rate
        if self.flow.read_paused:
            seconds = max(seconds, self._patience.body_seconds)
        if seconds < _WORTH_WAITING:
            self._too_slow("body")
            return
        self._credited = self._received
        self._deadline = self.loop.call_later(seconds, self._check_body)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self, part: str) -> None:
        self._deadline = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {part} of this request did not come in time")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Say why, if no answer has begun, and hang up at the latest when the client does not listen."""
        self._rest()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(raw_refusal(status, message))
        self.transport.close()
        self.loop.call_later(_LAST_WORDS_SECONDS, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


_WORTH_WAITING = 0.01
_LAST_WORDS_SECONDS = 1.0
"""For a refusal to be read, before a client that reads nothing is cut off."""
