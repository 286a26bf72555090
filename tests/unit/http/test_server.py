"""A server's process: every signal that stops it ends it cleanly."""

import signal

import pytest

from fakes.processes import DEADLINE, Processes, first_line

SERVER = """
import signal
from nat.http.guards import HostNames
from nat.http.server import Server, bind, stop_on_signals

async def app(scope, receive, send):
    raise AssertionError("nobody asks")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background lets its children ignore it
with bind("127.0.0.1", 0, command="test") as listener:
    server = Server(app, lambda: print("ready", flush=True), names=HostNames("127.0.0.1"))
    stop_on_signals(server)
    server.run(sockets=[listener])
print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_server(number):
    """The code after the server runs, and the process ends with exit code 0."""
    with Processes() as processes:
        process = processes.start("-c", SERVER)
        first_line(process)
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE) == ("closed\n", "")
    assert process.returncode == 0
