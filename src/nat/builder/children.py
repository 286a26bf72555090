"""Processes that we start: how, and what must not outlive us even when no cleanup runs any more."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nat.config.secrets import without_secrets

_groups: set[int] = set()


def python_module(name: str) -> tuple[str, ...]:
    """The command that runs a module with our own interpreter.

    The working folder is the user's, and a `datasets.py` or `random.py` in it is not the one that a library imports.
    """
    return sys.executable, "-P", "-m", name


async def run_module(name: str, *arguments: str) -> tuple[int, str]:
    """Run a module in a process of its own, without the user's secrets; its exit code, and what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        *python_module(name),
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=without_secrets(os.environ),
        start_new_session=True,
    )
    with known_child(process.pid):
        try:
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode is not None, "it has ended"
    return process.returncode, said.decode(errors="replace").strip()


@contextmanager
def known_child(pid: int) -> Iterator[None]:
    """Let `kill_children` know a process that leads a group of its own, until the block ends."""
    _groups.add(pid)
    try:
        yield
    finally:
        _groups.discard(pid)


def kill_children() -> None:
    """Kill every group that is known; safe in a signal handler."""
    for group in tuple(_groups):
        with suppress(OSError):  # it has ended by itself
            os.killpg(group, signal.SIGKILL)
