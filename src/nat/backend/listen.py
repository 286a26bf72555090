"""Take ports, serve an application on them until told to stop, and say when requests are welcome.

One line of JSON on stdout, `{"event": "ready", "port": …}`, tells the parent; all else goes to stderr. SIGTERM,
Ctrl-C and, if asked for, the end of stdin stop the server.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from nat.errors import BackendError

_GRACE_SECONDS = 3
_LAST_GRACE_SECONDS = 10.0
_READY_FIELDS = ("port", "inference_port")


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Take the port; before the model is loaded, so that a taken one is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BackendError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint=f"choose another {option}; 0 takes a free one",
        ) from error
    return listener


def port_of(listener: socket.socket) -> int:
    """The port that was taken, which is news if any free one was asked for."""
    port: int = listener.getsockname()[1]
    return port


def serve_until_stopped(app: ASGIApp, listeners: Sequence[socket.socket], *, exit_with_parent: bool) -> None:
    """Answer on all `listeners`: the port of the API and, if there is one, the inference port."""
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            http="httptools",
        )
    )
    if exit_with_parent:
        threading.Thread(target=_stop_at_end_of_stdin, args=(server,), daemon=True, name="parent").start()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server takes these over while it runs and raises them again when it has ended, which then is old news.
        signal.signal(number, _already_stopped)
    server.run(sockets=list(listeners))


class _Server(uvicorn.Server):
    """Says that it is ready once it accepts connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets, "the sockets were opened before the server"
        ports = dict(zip(_READY_FIELDS, map(port_of, sockets), strict=False))
        sys.stdout.write(json.dumps({"event": "ready", **ports}) + "\n")
        sys.stdout.flush()


def _stop_at_end_of_stdin(server: uvicorn.Server) -> None:
    """Wait for the end of stdin; then stop the server, and if that takes too long, the process."""
    while sys.stdin.buffer.read(4096):
        pass
    server.should_exit = True
    timer = threading.Timer(_LAST_GRACE_SECONDS, os._exit, args=(1,))
    timer.daemon = True
    timer.start()


def _already_stopped(number: int, frame: FrameType | None) -> None:
    """Nothing is left to do for this signal."""
