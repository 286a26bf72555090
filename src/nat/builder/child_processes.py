"""Start child processes, and kill their process groups when the harness is killed."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nat.config.secrets import without_secrets

_groups: set[int] = set()
_LONGEST_LINE = 16 * 2**20
"""Bytes of a line that a child writes for us; asyncio's default is 64 KiB."""


def python_module(name: str) -> tuple[str, ...]:
    """The command that runs a module with our own interpreter.

    `-P` keeps the working folder off the path: a user's `datasets.py` there must not replace a library's.
    """
    return sys.executable, "-P", "-m", name


async def run_module(name: str, *arguments: str, on_line: Callable[[str], None] | None = None) -> tuple[int, str]:
    """Run a module in a child process without the user's secrets; returns its exit code and stderr, not its stdout."""
    process = await asyncio.create_subprocess_exec(
        *python_module(name),
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL if on_line is None else PIPE,
        stderr=PIPE,
        env=without_secrets(os.environ),
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    with known_child(process.pid):
        try:
            assert process.stderr is not None, "a pipe"
            stderr, _ = await asyncio.gather(process.stderr.read(), _tell(process.stdout, on_line))
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode is not None, "it has ended"
    return process.returncode, stderr.decode(errors="replace").strip()


async def _tell(stream: asyncio.StreamReader | None, on_line: Callable[[str], None] | None) -> None:
    if stream is not None and on_line is not None:
        async for line in stream:
            on_line(line.decode(errors="replace").rstrip("\n"))


@contextmanager
def known_child(pid: int) -> Iterator[None]:
    """Register a process group for `kill_children` until the block ends; `pid` is its leader."""
    _groups.add(pid)
    try:
        yield
    finally:
        _groups.discard(pid)


def kill_children() -> None:
    """Kill every registered group; safe in a signal handler."""
    for group in tuple(_groups):
        with suppress(OSError):  # it has ended already
            os.killpg(group, signal.SIGKILL)
