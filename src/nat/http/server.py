"""Listen on a port and serve an application there until a signal stops it."""

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType

import uvicorn

from nat.errors import ConfigError
from nat.http.asgi import App, BodyLimit
from nat.http.guards import Guard, HostCheck, HostNames

_GRACE_SECONDS = 3
_KEEP_ALIVE_SECONDS = 60
"""Longer than clients keep idle connections, so that none sends a request on a connection that the server closes."""
_MOST_CONNECTIONS = 2000
"""As many as all rollouts of an epoch may have, twice; further requests get 503."""
_LOOPBACK = HostNames("127.0.0.1")


def bind(host: str, port: int, *, command: str, option: str = "--port") -> socket.socket:
    """A socket on the port; bind before loading a model, so that a taken port is reported at once.

    Raises:
        ConfigError: the port is taken, or the host is not this machine; in terms of the command's options.

    """
    try:
        return bound_socket(host, port)
    except OSError as error:
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        of_host = "set --host to an address of this machine; 0.0.0.0 means all of them"
        raise ConfigError(
            [f"--host {host} {option} {port}: cannot listen there: {error.strerror or error}"],
            source=f"the options of `{command}`",
            hint=of_host if elsewhere else f"choose another {option}; 0 takes a free one",
        ) from error


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket on the port; of two addresses of the host it takes the IPv4 one; OSError if it cannot be had."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, _, _, address = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
    with contextlib.ExitStack() as on_error:
        listener = on_error.enter_context(socket.socket(family, kind))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        on_error.pop_all()
    return listener


def port_of(listener: socket.socket) -> int:
    """The port of a socket; for port 0 the system has chosen one."""
    port: int = listener.getsockname()[1]
    return port


def url_of(listener: socket.socket, host: str | None = None) -> str:
    """The URL of a server on this socket, with `host` or else the socket's address."""
    name = host or listener.getsockname()[0]
    return f"http://[{name}]:{port_of(listener)}" if ":" in name else f"http://{name}:{port_of(listener)}"


class Server(uvicorn.Server):
    """Runs until SIGTERM, SIGHUP or Ctrl-C; calls `on_ready` once it accepts connections; answers to `names` only."""

    def __init__(
        self,
        app: App,
        on_ready: Callable[[], None],
        *,
        names: HostNames,
        grace_seconds: int = _GRACE_SECONDS,
    ) -> None:
        config = uvicorn.Config(
            Guard(BodyLimit(app), HostCheck(names)),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=grace_seconds,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            limit_concurrency=_MOST_CONNECTIONS,
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


@contextlib.asynccontextmanager
async def listening(
    app: App, listener: socket.socket | None = None, names: HostNames = _LOOPBACK
) -> AsyncIterator[str]:
    """The URL of an application that is served in the running event loop; on a free port of loopback by default."""
    with listener or bind(_LOOPBACK.bound, 0, command="nat") as bound:
        ready = asyncio.Event()
        server = _EmbeddedServer(app, ready.set, names=names, grace_seconds=1)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            await ready.wait()
            yield url_of(bound)
        finally:
            server.should_exit = True
            await serving


class _EmbeddedServer(Server):
    """A server inside another program, which handles the signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def signals_raised() -> Iterator[None]:
    """Have the first signal that ends the process raise SystemExit, so that whatever has been opened is closed.

    The exit code is 128 plus the signal's number. Further signals are ignored, since the process is closing.
    """
    before = {number: signal.getsignal(number) for number in _ends()}

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        for each in before:
            signal.signal(each, _closing)
        raise SystemExit(128 + number)

    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _closing(number: int, frame: FrameType | None) -> None:
    """Do nothing; Python complains about SIG_IGN if a second signal has arrived already."""


def stop_on_signals(server: uvicorn.Server) -> None:
    """Have signals stop the server, before it runs and after that, when uvicorn raises the signal again."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        server.should_exit = True

    for number in _ends():
        signal.signal(number, stop)


def _ends() -> list[signal.Signals]:
    """The signals that end a server; none where they cannot be handled, and not those that are ignored on purpose."""
    if threading.current_thread() is not threading.main_thread():
        return []
    known = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    return [number for number in known if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN]
