"""A run's lock tells a running process from a killed one."""

import signal
import subprocess
import sys

from nat.runs.liveness import is_alive, marked_alive

HOLD = """
import sys, time
from pathlib import Path
from nat.runs.liveness import marked_alive
with marked_alive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_is_held_inside_the_block(tmp_path):
    """A run is alive from its beginning to its end."""
    with marked_alive(tmp_path):
        assert is_alive(tmp_path) is True
    assert is_alive(tmp_path) is False


def test_a_killed_process_is_not_alive(tmp_path):
    """The system releases the lock, however the process ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert is_alive(tmp_path) is True
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert is_alive(tmp_path) is False
