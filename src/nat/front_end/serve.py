"""`nat serve`: open the workflow of a YAML and serve it until a signal stops it."""

from collections.abc import Callable
from pathlib import Path

from nat.config.load import load_config
from nat.front_end.app import create_app
from nat.front_end.options import FrontEndOptions
from nat.http.guards import HostNames
from nat.http.server import Server, bind, stop_on_signals, url_of
from nat.rollout.served import opened_workflow
from nat.wire.hosts import host_names

OnReady = Callable[[str], None]
"""Called with the URL once the server accepts requests."""


async def serve(
    config_file: Path, override: tuple[tuple[str, str], ...], options: FrontEndOptions, on_ready: OnReady
) -> None:
    """Serve the workflow of a YAML until SIGTERM or Ctrl-C; then end running requests and close the workflow.

    Raises:
        ConfigError: the configuration is wrong, or the port is taken.

    """
    key = None if options.api_key is None else options.api_key.get_secret_value()
    with bind(options.host, options.port, command="nat serve") as listener:
        async with opened_workflow(load_config(config_file, override)) as served:
            names = HostNames(options.host, host_names(options.allowed_hosts))
            name = served.function.config.name or config_file.stem
            app = create_app(served, name=name, api_key=key, allowed_hosts=names.allowed)
            server = Server(app, lambda: on_ready(url_of(listener, options.host)), names=names)
            stop_on_signals(server)
            await server.serve(sockets=[listener])
