"""Listen on a port of this machine, in the event loop that runs."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn

from nat.gateway.asgi import App

_KEEP_ALIVE_SECONDS = 60
_GRACE_SECONDS = 1
_BACKLOG = 1024


def take_port(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket that listens, on a free port if it is 0; OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


@asynccontextmanager
async def listening(app: App, listener: socket.socket | None = None) -> AsyncIterator[str]:
    """The URL of the app while it is served; without a socket to listen on, on a free port of loopback."""
    with listener or take_port() as taken:
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                http="httptools",
                ws="none",
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        try:
            await server.ready.wait()
            yield _url(taken)
        finally:
            server.should_exit = True
            await serving


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to the program that it is part of."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
