"""vLLM's process: started, watched, explained and ended; a script stands for vLLM."""

import os
import queue
import signal
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from fakes.processes import ended
from nat.backend.vllm.server import OwnServer
from nat.errors import EngineFailed

DEADLINE = 30
HEALTHY = """
import http.server, os, socketserver, subprocess, sys
path = sys.argv[sys.argv.index("--uds") + 1]
if os.path.exists(path):
    os.unlink(path)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("pids", os.getpid(), child.pid, os.environ["VLLM_SERVER_DEV_MODE"], flush=True)
print("cards", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("", 0)
Server(path, Handler).serve_forever()
"""


WRAPPED = """
raise SystemExit('ValueError: less than requested memory' + 30 * '\\nx' + '\\nRuntimeError: See root cause above.')
"""


@pytest.fixture
def make(tmp_path):
    """Servers from a script, stopped at the end."""
    made = []
    with tempfile.TemporaryDirectory() as private:
        folder = Path(private)

        def make_one(script: str, *, timeout: float = DEADLINE, command: str = sys.executable) -> OwnServer:
            server = OwnServer(
                [command, "-c", script, "--x"],
                log_path=tmp_path / "v.log",
                timeout=timeout,
                folder=folder,
                variables={"CUDA_VISIBLE_DEVICES": "1,3"},
            )
            made.append(server)
            return server

        yield make_one
        for server in made:
            server.stop()


def pids(log: Path) -> list[int]:
    """The process and its child, from the last start."""
    line = [line for line in log.read_text().splitlines() if line.startswith("pids")][-1]
    return [int(part) for part in line.split()[1:3]]


def await_end(*each: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while not all(map(ended, each)):
        assert time.monotonic() < deadline, each
        time.sleep(0.01)


def test_starts_on_a_socket_of_this_user_and_ends_with_its_children(make, tmp_path):
    """Nobody else can open the socket's folder, and it sees its own GPUs; stopping ends every process.

    It can be started again. Neither is reported as a failure.
    """
    server = make(HEALTHY)
    failures = queue.Queue()
    server.watch(failures.put)
    server.start()
    socket = Path(server.address.socket)
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    first = pids(tmp_path / "v.log")
    assert "cards 1,3\n" in (tmp_path / "v.log").read_text()
    server.restart()
    await_end(*first)
    second = pids(tmp_path / "v.log")
    server.stop()
    await_end(*second)
    assert failures.empty()


def test_a_killed_server_is_reported_once_with_its_log(make, tmp_path):
    """The watcher names the signal; calls that break meanwhile get the same explanation."""
    server = make(HEALTHY)
    failures = queue.Queue()
    server.watch(failures.put)
    server.start()
    process, child = pids(tmp_path / "v.log")
    os.kill(process, signal.SIGKILL)
    failure = failures.get(timeout=DEADLINE)
    assert isinstance(failure, EngineFailed)
    assert "was killed (SIGKILL)" in failure.message
    assert "pids" in failure.message
    assert "dmesg" in failure.hint
    assert str(server.explain(httpx.ReadError("gone"))) == str(failure)
    await_end(child)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        ("raise SystemExit('vllm: error: unrecognized arguments: --uds')", EngineFailed, "unrecognized arguments"),
        ("raise SystemExit('torch.OutOfMemoryError: CUDA out of memory')", EngineFailed, "lower max_seq_length"),
        (
            WRAPPED,
            EngineFailed,
            "(ValueError: less than requested memory)",
        ),
        ("import os; os.kill(os.getpid(), 9)", EngineFailed, "was killed (SIGKILL) before it was ready"),
    ],
)
def test_an_end_before_it_is_ready_is_explained(make, script, kind, text):
    """The error has the end of the log, and the remedy that fits it."""
    with pytest.raises(kind) as caught:
        make(script).start()
    assert type(caught.value) is kind
    assert text in str(caught.value)
