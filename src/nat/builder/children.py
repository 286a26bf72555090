"""Processes that we started: what must not outlive us even when no cleanup runs any more."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_groups: set[int] = set()


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
