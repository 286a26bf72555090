"""Run a program until it ends or its time is over; nothing that it started stays behind."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nat.builder.children import known_child

_GRACE_SECONDS = 2.0


async def run_program(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdin: Path, stdout: Path, stderr: Path
) -> int:
    """The exit code, once the program has ended by itself; when this task is cancelled, it is ended.

    It reads and writes files, since a pipe stays open as long as anything holds it. It leads a process group of its
    own, which ends with it: a service that it started must not go on asking the model.
    """
    with stdin.open("rb") as reads, stdout.open("wb") as writes, stderr.open("wb") as complains:
        process = await asyncio.create_subprocess_exec(
            *arguments, env=env, cwd=cwd, stdin=reads, stdout=writes, stderr=complains, start_new_session=True
        )
    with known_child(process.pid):
        try:
            return await process.wait()
        finally:
            await _end_group(process)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Ask the whole group to end, and kill what is left of it."""
    try:
        if process.returncode is None:
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
    finally:
        _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # empty already; or, on macOS, only zombies in it
        os.killpg(group, number)
