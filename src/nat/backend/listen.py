"""Take ports, serve an application on them until told to stop, and say when requests are welcome.

One line of JSON on stdout, `{"event": READY, "port": …}`, tells the parent; all else goes to stderr. SIGTERM,
Ctrl-C and, if asked for, the end of stdin stop the server.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping

from nat.http.asgi import App
from nat.http.guards import HostNames
from nat.http.server import Server, ignore_signals_after_stop, port_of
from nat.wire.serving import READY

_LAST_GRACE_SECONDS = 10.0


def serve_until_stopped(
    app: App, listeners: Mapping[str, socket.socket], *, names: HostNames, exit_with_parent: bool
) -> None:
    """Answer on all `listeners`; the ready line gives their ports under the same names."""
    ready = {"event": READY, **{name: port_of(listener) for name, listener in listeners.items()}}
    server = Server(app, lambda: print(json.dumps(ready), flush=True), names=names)  # noqa: T201 - for the parent
    if exit_with_parent:
        threading.Thread(target=_stop_at_end_of_stdin, args=(server,), daemon=True, name="parent").start()
    ignore_signals_after_stop()
    server.run(sockets=list(listeners.values()))


def _stop_at_end_of_stdin(server: Server) -> None:
    """Wait for the end of stdin; then stop the server, and if that takes too long, the process."""
    while sys.stdin.buffer.read(4096):
        pass
    server.should_exit = True
    timer = threading.Timer(_LAST_GRACE_SECONDS, os._exit, args=(1,))
    timer.daemon = True
    timer.start()
