"""Our own commands in processes of their own, as a user starts them."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

DEADLINE = 240
NAT = "from nat.cli.main import run_cli; run_cli()"


class Processes(ExitStack):
    """What still runs at the end of the block is killed."""

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Python with these arguments; what it writes can be read."""
        process = self.enter_context(
            subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
            )
        )
        self.callback(process.kill)
        return process


def first_line(process: subprocess.Popen[str]) -> str:
    """By it a server says that it is ready; one that ends instead has said why."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=DEADLINE)[1]
    return line


def stop(process: subprocess.Popen[str]) -> None:
    """As a service manager does it; the process ends well."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=DEADLINE) == 0


def environment_without(prefix: str) -> dict[str, str]:
    """This process's, less the variables that begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}


def free_port() -> int:
    """One on which nobody listened a moment ago."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
