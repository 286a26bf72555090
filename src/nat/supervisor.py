"""Run one program, and end every process that it started, even outside its process group or without a parent.

    python -I -S supervisor.py STDIN STDOUT PROGRAM ARGUMENTS…

Each rollout, each update by a program and each vLLM has a supervisor process, on Linux only: orphans of the program
become its children. STDOUT `-` is our stderr. It imports only the standard library, to start quickly. Its stdin is
closed when the program must end, or when the harness has died.
On its stdout it writes `exit N` with the exit code (negative for a signal), or `errno N` if the program cannot be
started.
"""

import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_GRACE_SECONDS = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_KILL_SECONDS = 10.0
"""Seconds after SIGKILL; a process that still runs is left alone."""
SUPERVISED = (sys.executable, "-I", "-S", __file__)
"""The command that runs this module."""
_HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(stdin: str, stdout: str, *arguments: str) -> None:
    """Start the program, wait for it or for the end of our stdin, clean up, report."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken = _wake_on_signals()
    try:
        program = _start(arguments, stdin, stdout)
    except OSError as error:
        os.write(1, f"errno {error.errno}".encode())
        return
    code = _wait(program, woken)
    _kill_all()
    os.write(1, f"exit {code}".encode())


def _wake_on_signals() -> int:
    """A pipe that can be read when a signal has come; handlers, since a program would inherit that one is ignored."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes)
    for number in _HANDLED:
        signal.signal(number, lambda *_: None)
    return reads


def _start(arguments: tuple[str, ...], stdin: str, stdout: str) -> int:
    """Start the program in a new session with our stderr; returns its process id."""
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    files = [
        (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, 2, 1) if stdout == "-" else (os.POSIX_SPAWN_OPEN, 1, stdout, new, 0o600),
    ]
    return os.posix_spawnp(
        arguments[0], arguments, os.environ, file_actions=files, setsid=True, setsigdef=(signal.SIGPIPE,)
    )


def _wait(program: int, woken: int) -> int:
    """The exit code, once the program has ended by itself, or because our stdin has ended."""
    deadline: float | None = None
    ended: dict[int, int] = {}
    while _reap(ended) and program not in ended:
        waits = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([woken] if deadline else [0, woken], [], [], waits)
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready and not os.read(0, 4096):
            deadline = time.monotonic() + _GRACE_SECONDS
            _signal_all(signal.SIGTERM)
        if deadline is not None and time.monotonic() >= deadline:
            _signal_all(signal.SIGKILL)
            deadline = time.monotonic() + _GRACE_SECONDS
    return ended[program]


def _reap(ended: dict[int, int]) -> bool:
    """Collect the exit codes of children that have ended; False if none is left, and so no descendant either."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        return False
    return True


def _kill_all() -> None:
    """Kill until no process is left: one that starts meanwhile becomes our child, too."""
    until = time.monotonic() + _KILL_SECONDS
    while _reap({}) and time.monotonic() < until:
        _signal_all(signal.SIGKILL)
        time.sleep(0.005)


def _signal_all(number: signal.Signals) -> None:
    for pid in _descendants():
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # it has ended, or is another user's


def _descendants() -> list[int]:
    """Children, their children, and so on; those who lost their parents are our children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to import than all else here
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - likewise
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # it has ended
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
