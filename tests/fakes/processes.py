"""Our own commands in their own processes, as a user starts them."""

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

DEADLINE = 240
NAT = "from nat.cli.main import run_cli; run_cli()"


class Processes(ExitStack):
    """Processes; those that still run at the end of the block are killed."""

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start Python with these arguments; its output can be read."""
        process = self.enter_context(
            subprocess.Popen(
                [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
            )
        )
        self.callback(process.kill)
        return process


def first_line(process: subprocess.Popen[str]) -> str:
    """Read the ready line of a server; if the process exits instead, raise with its output."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=DEADLINE)[1]
    return line


def stop(process: subprocess.Popen[str]) -> None:
    """Stop the process as a service manager does, and check its exit code."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=DEADLINE) == 0


def environment_without(prefix: str) -> dict[str, str]:
    """This process's environment without the variables with this prefix."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}


def free_port() -> int:
    """A port that was free a moment ago, below those that a system hands out by itself and other tests may get."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


@contextmanager
def refused_port() -> Iterator[int]:
    """A port that refuses connections; it is held, so that no server of another test gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def ended(pid: int) -> bool:
    """True once the process has ended, a zombie included."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def started_as(pid: int) -> int:
    """The id by which the parent of a process knows it: that of the process that stands for it, if it is a fork."""
    name, _, stand_in = Path(f"/proc/{pid}/comm").read_text().partition(" ")
    return int(stand_in) if name == "for" else pid


def await_end(pid: int) -> None:
    """Wait for the end of a process of Linux that may be another's child; a zombie has ended."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            assert select.select([process], [], [], DEADLINE)[0], f"process {pid} still runs"
        finally:
            os.close(process)
