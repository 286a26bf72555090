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


async def run_module(name: str, *arguments: str, on_line: Callable[[str], None] = lambda _: None) -> tuple[int, str]:
    """Run a module in a child process without the user's secrets; its exit code and stderr, while each line is told."""
    process = await asyncio.create_subprocess_exec(
        *python_module(name),
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=without_secrets(os.environ),
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    assert process.stdout is not None, "a pipe"
    assert process.stderr is not None, "a pipe"
    with known_child(process.pid):
        try:
            said = asyncio.create_task(process.stderr.read())
            async for line in process.stdout:
                on_line(line.decode(errors="replace").rstrip("\n"))
            return await process.wait(), (await said).decode(errors="replace").strip()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


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
