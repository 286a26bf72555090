"""Run a program until it ends or is cancelled; the processes that it started are ended too.

On Linux a supervisor (`nat.supervisor`) finds every process that the program started. On other systems the program's
process group is ended, which a process can leave by `setsid`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nat.builder.child_processes import known_child
from nat.supervisor import SUPERVISED

_GRACE_SECONDS = 2.0
_PASS_SECONDS = 0.02
"""Between two passes over `/proc`."""
_SUPERVISOR_SECONDS = 20.0
"""Longer than the supervisor ever takes."""


@dataclass(frozen=True)
class Program:
    """A program with its arguments, environment and files.

    It reads and writes files, since a pipe stays open while any process has it.
    """

    arguments: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stdin: Path
    stdout: Path
    stderr: Path


async def run_program(program: Program, *, mark: str) -> int:
    """Run the program and return its exit code; a cancellation ends it.

    `mark` is a unique value in its environment, by which its processes are found if the supervisor is killed.

    Raises:
        OSError: it cannot be started.

    """
    return await (_supervised(program, mark) if sys.platform == "linux" else _in_a_group(program))


async def _supervised(program: Program, mark: str) -> int:
    command = [*SUPERVISED, str(program.stdin), str(program.stdout), *program.arguments]
    with program.stderr.open("wb") as complains:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=program.env,
            cwd=program.cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=complains,
            start_new_session=True,
        )
    assert process.stdin is not None, "stdin is a pipe"
    assert process.stdout is not None, "likewise"
    report = b""
    try:
        report = await process.stdout.read()
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(_SUPERVISOR_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if process.returncode != 0:
            await _end_marked(mark)
    if not report:
        return process.returncode or -signal.SIGKILL
    kind, number = report.split()
    if kind == b"errno":
        raise OSError(int(number), os.strerror(int(number)))
    return int(number)


async def _end_marked(mark: str) -> None:
    """Kill processes with the mark in their environment, after a program has killed its supervisor.

    Pass after pass, until two in a row find none: a process may fork meanwhile, and has no environment while it starts.
    """
    passes, clean = 2, 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_SUPERVISOR_SECONDS):
            while clean < passes:
                clean = 0 if _kill_marked(mark) else clean + 1
                await asyncio.sleep(_PASS_SECONDS)


def _kill_marked(mark: str) -> bool:
    """Kill those found in one pass over `/proc`; says whether there were any."""
    found = False
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is not ours
            if mark.encode() in path.read_bytes():
                found = True
                os.kill(int(path.parent.name), signal.SIGKILL)
    return found


async def _in_a_group(program: Program) -> int:
    with program.stdin.open("rb") as reads, program.stdout.open("wb") as writes, program.stderr.open("wb") as complains:
        process = await asyncio.create_subprocess_exec(
            *program.arguments,
            env=program.env,
            cwd=program.cwd,
            stdin=reads,
            stdout=writes,
            stderr=complains,
            start_new_session=True,
        )
    with known_child(process.pid):
        try:
            return await process.wait()
        finally:
            await _end_group(process)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Terminate the process group, then kill it."""
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
