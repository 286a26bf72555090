"""Take a port, answer on it until told to stop, and say when requests are welcome."""

import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from nat.asgi.connection import Connection, Patience
from nat.asgi.held_bodies import HeldBodies
from nat.asgi.host_check import HostCheck, HostNames

_GRACE_SECONDS = 3
_KEEP_ALIVE_SECONDS = 60
"""Longer than any client keeps an idle connection: else both ends may give it up at once, one by asking through it."""


def take_port(host: str, port: int) -> socket.socket:
    """Bind before what is to be served is loaded, so that a taken port is told at once; of two addresses the IPv4.

    Raises:
        OSError: the port is taken, or the host is not this machine.

    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, _, _, address = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def port_of(listener: socket.socket) -> int:
    """The port that was taken, which is news if any free one was asked for."""
    port: int = listener.getsockname()[1]
    return port


class Server(uvicorn.Server):
    """Runs until SIGTERM, SIGHUP or Ctrl-C; calls `on_ready` once it accepts connections; answers to `names` only."""

    def __init__(
        self,
        app: ASGIApp,
        on_ready: Callable[[], None],
        *,
        names: HostNames,
        patience: Patience = Patience(),  # noqa: B008 - frozen
        grace_seconds: int = _GRACE_SECONDS,
    ) -> None:
        config = uvicorn.Config(
            HostCheck(HeldBodies(app), names),
            http=partial(Connection, patience=patience),  # type: ignore[arg-type]  # makes one, as the class would
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=grace_seconds,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def forget_signals() -> None:
    """The server takes signals over while it runs and raises them again when it has ended, which then is old news.

    A hang-up of the terminal stops it, too.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _already_stopped)
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, _stop)  # the server does not know it, and would end without closing anything


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    signal.raise_signal(signal.SIGTERM)


def _already_stopped(number: int, frame: FrameType | None) -> None:
    """Nothing is left to do for this signal."""
