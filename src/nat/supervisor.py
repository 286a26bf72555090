"""Run one program, and end its process group when it has ended or when our stdin is closed.

    python -I -S supervisor.py STDIN STDOUT PROGRAM ARGUMENTS…

Each rollout of a program, each update by one and each vLLM has a supervisor process. Its stdin is closed when the
program must end, or when the harness has died. STDOUT `-` is our stderr.
On its stdout it writes `exit N` with the exit code (negative for a signal), or `errno N` if the program cannot be
started. It imports only the standard library, to start quickly.
"""

import os
import signal
import sys
import threading
import time

_GRACE_SECONDS = 2.0
"""Seconds from SIGTERM to SIGKILL."""
SUPERVISED = (sys.executable, "-I", "-S", __file__)
"""The command that runs this module."""
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(stdin: str, stdout: str, *arguments: str) -> None:
    """Start the program, wait for it or for the end of our stdin, end its group, report."""
    for number in _IGNORED:  # the harness closes our stdin
        signal.signal(number, signal.SIG_IGN)
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    files = [
        (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, 2, 1) if stdout == "-" else (os.POSIX_SPAWN_OPEN, 1, stdout, new, 0o600),
    ]
    defaults = (*_IGNORED, signal.SIGPIPE)
    try:
        program = os.posix_spawnp(
            arguments[0], arguments, os.environ, file_actions=files, setsid=True, setsigdef=defaults
        )
    except OSError as error:
        os.write(1, f"errno {error.errno}".encode())
        return
    threading.Thread(target=_end_with_stdin, args=(program,), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    _signal_group(program, signal.SIGKILL)
    os.write(1, f"exit {code}".encode())


def _end_with_stdin(group: int) -> None:
    while os.read(0, 4096):
        continue
    _signal_group(group, signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # it is empty; on macOS, only zombies are in it


if __name__ == "__main__":
    main(*sys.argv[1:])
