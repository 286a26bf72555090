"""Take the port, open the workflow, and answer until told to stop."""

import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from nat.errors import ConfigError
from nat.front_end.app import create_app
from nat.front_end.options import ServeOptions
from nat.front_end.served import opened_workflow

_GRACE_SECONDS = 3
_KEEP_ALIVE_SECONDS = 60

OnReady = Callable[[str], None]
"""Is told the URL once requests are welcome."""


async def serve(
    config_file: Path, override: tuple[tuple[str, str], ...], options: ServeOptions, on_ready: OnReady
) -> None:
    """Serve the workflow of a YAML until SIGTERM or Ctrl-C; then end what runs, and close the workflow.

    Raises:
        ConfigError: the configuration is wrong, or the port is taken.

    """
    key = None if options.api_key is None else options.api_key.get_secret_value()
    with _listen(options.host, options.port) as listener:
        async with opened_workflow(config_file, override) as served:
            app = create_app(served, name=config_file.stem, api_key=key)
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
            _forget_signals()
            host = f"[{options.host}]" if ":" in options.host else options.host
            url = f"http://{host}:{listener.getsockname()[1]}"
            await _Server(config, lambda: on_ready(url)).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Says that it is ready once it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before the workflow is opened, so that a taken one is told at once; of two addresses the IPv4."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigError(
            [f"--host {host} --port {port}: cannot listen there: {error.strerror or error}"],
            source="the options of `nat serve`",
            hint="choose another --port; 0 takes a free one",
        ) from error
    return listener


def _forget_signals() -> None:
    """The server takes signals over while it runs and raises them again when it has ended, which then is old news."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _already_stopped)


def _already_stopped(number: int, frame: FrameType | None) -> None:
    """Nothing is left to do for this signal."""
