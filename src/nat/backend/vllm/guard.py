"""`python -m nat.backend.vllm.guard COMMAND…`: run vLLM, and end all of its processes when stdin ends.

vLLM starts processes of its own. They have to end even if the backend is killed, which closes this process's stdin.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

GRACE_SECONDS = 10.0
KILLED = 128 + signal.SIGKILL


def main(command: list[str]) -> int:
    """Run the command; returns its exit code, or 128 plus the signal that ended it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - the user's command
    threading.Thread(target=_end_with_stdin, args=(process.pid,), daemon=True).start()
    code = process.wait()
    _signal(process.pid, signal.SIGKILL)  # what it left running
    return code if code >= 0 else 128 - code


def _end_with_stdin(group: int) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # no buffer, whose lock would be held at the end of the process
        pass
    _signal(group, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
