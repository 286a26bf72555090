"""`python -m nat.backend.vllm.guard COMMAND…`: run vLLM, and end all of its processes when stdin ends, or at SIGTERM.

vLLM starts processes of its own. They have to end even if the backend is killed, which closes this process's stdin.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

GRACE_SECONDS = 5.0
"""For all processes to end; half of what the backend has, when it is stopped."""
LEFT_SECONDS = 3.0
"""For processes that the first one left running."""
_POLL_SECONDS = 0.05
KILLED = 128 + signal.SIGKILL


def main(command: list[str]) -> int:
    """Run the command; returns its exit code, or 128 plus the signal that ended it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(process.pid, signal.SIGTERM))  # the rest follows its end
    threading.Thread(target=_end_with_stdin, args=(process.pid,), daemon=True).start()
    code = process.wait()
    _end_group(process.pid, LEFT_SECONDS)
    return code if code >= 0 else 128 - code


def _end_with_stdin(group: int) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # no buffer, whose lock would be held at the end of the process
        pass
    _end_group(group, GRACE_SECONDS)


def _end_group(group: int, seconds: float) -> None:
    """Ask a group to end, so that it can free what it shares, and kill what is left after some seconds."""
    deadline = time.monotonic() + seconds
    with suppress(ProcessLookupError):  # it has ended
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(_POLL_SECONDS)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
