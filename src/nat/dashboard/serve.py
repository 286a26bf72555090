"""`nat ui`: serve the pages on loopback until a signal stops it."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from nat.dashboard.access import KEY, Access
from nat.dashboard.app import create_app
from nat.http.guards import HostNames
from nat.http.server import Server, bind, port_of, stop_on_signals, url_of
from nat.secrets import new_key

HOST = "127.0.0.1"


async def serve(root: Path | None, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `on_ready` gets the link with the key.

    Raises:
        ConfigError: the port is taken.

    """
    key = new_key()
    with bind(HOST, port, command="nat ui") as listener:
        link = f"{url_of(listener)}/?{urlencode({KEY: key})}"
        app = Access(create_app(root), key, port=port_of(listener))
        server = Server(app, lambda: on_ready(link), names=HostNames(HOST))
        stop_on_signals(server)
        await server.serve(sockets=[listener])
