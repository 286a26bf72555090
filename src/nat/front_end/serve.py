"""Take the port, open the workflow, and answer until told to stop."""

import socket
from collections.abc import Callable
from pathlib import Path

from nat.asgi.host_check import HostNames
from nat.asgi.listen import Server, forget_signals, port_of, take_port
from nat.errors import ConfigError
from nat.front_end.app import create_app
from nat.front_end.options import ServeOptions
from nat.front_end.served import opened_workflow
from nat.wire.hosts import host_names

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
            names = HostNames(options.host, host_names(options.allowed_hosts))
            name = served.function.config.name or config_file.stem
            app = create_app(served, name=name, api_key=key, allowed_hosts=names.allowed)
            host = f"[{options.host}]" if ":" in options.host else options.host
            url = f"http://{host}:{port_of(listener)}"
            forget_signals()
            server = Server(app, lambda: on_ready(url), names=names)
            await server.serve(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        return take_port(host, port)
    except OSError as error:
        raise ConfigError(
            [f"--host {host} --port {port}: cannot listen there: {error.strerror or error}"],
            source="the options of `nat serve`",
            hint="choose another --port; 0 takes a free one",
        ) from error
