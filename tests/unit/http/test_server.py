"""A server's process: every signal that stops it ends it cleanly."""

import signal

import pytest

from fakes.processes import DEADLINE, Processes, first_line
from nat.errors import ConfigError
from nat.http.server import bind

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


def test_an_address_of_another_machine_is_not_the_port_s_fault():
    """No other port would help, so the remedy is about the host."""
    with pytest.raises(ConfigError, match=r"(?s)--host 192\.0\.2\.1 --port 0: .*set --host to an address"):
        bind("192.0.2.1", 0, command="test")
