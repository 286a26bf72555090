"""Listen on a port of this machine, in the event loop that runs."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from nat.asgi.host_check import HostNames
from nat.asgi.listen import Server, take_port
from nat.gateway.asgi import App

_GRACE_SECONDS = 1
_LOOPBACK = HostNames("127.0.0.1")


@asynccontextmanager
async def listening(
    app: App, listener: socket.socket | None = None, names: HostNames = _LOOPBACK
) -> AsyncIterator[str]:
    """The URL of the app while it is served; without a socket to listen on, on a free port of loopback."""
    with listener or take_port(_LOOPBACK.bound, 0) as taken:
        ready = asyncio.Event()
        server = _Part(app, ready.set, names=names, grace_seconds=_GRACE_SECONDS)
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        try:
            await ready.wait()
            yield _url(taken)
        finally:
            server.should_exit = True
            await serving


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Part(Server):
    """Leaves signals to the program that it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
