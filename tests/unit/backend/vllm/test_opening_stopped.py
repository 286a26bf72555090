"""A backend that is ended while vLLM starts leaves no process and no folder; a script that sleeps stands for vLLM."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.processes import DEADLINE, NAT, Processes, await_file, ended

SLOW = """
import json, os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
seen = {"pids": [os.getpid(), child.pid], "arguments": sys.argv}
part = pathlib.Path(sys.argv[1] + ".part")
part.write_text(json.dumps(seen))
part.rename(sys.argv[1])
time.sleep(600)
"""


@pytest.fixture
def arguments(tiny_dir, tmp_path) -> dict[str, object]:
    """Options of a backend whose vLLM writes to `seen` what it was started with, and is never ready."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    command = shlex.join([sys.executable, str(script), str(tmp_path / "seen")])
    given = {"model": tiny_dir(), "port": 0, "device": "cpu", "output_dir": tmp_path / "out", "lora_rank": 4}
    return {**given, "engine": "vllm", "vllm_command": command}


def serve(arguments: dict[str, object]) -> list[str]:
    return ["-c", NAT, "backend", "serve", *(f"--{name}={value}" for name, value in arguments.items())]


def assert_nothing_is_left(seen: dict) -> None:
    """No process of vLLM runs, and the socket's folder is gone."""
    given = seen["arguments"]
    assert not Path(given[given.index("--uds") + 1]).parent.exists()
    assert all(map(ended, seen["pids"]))


@pytest.mark.parametrize("end", [signal.SIGINT, None])
def test_a_signal_while_vllm_starts_leaves_nothing(arguments, tmp_path, end):
    """The exit code tells the signal. The end of the parent, which closes stdin, ends the backend as SIGTERM does."""
    with Processes() as processes:
        process = processes.start(*serve(arguments), "--exit_with_parent", stdin=subprocess.PIPE)
        seen = json.loads(await_file(tmp_path / "seen", process))
        if end is None:
            process.stdin.close()
            process.stdin = None
        else:
            process.send_signal(end)
        _, log = process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + (end or signal.SIGTERM), log
    assert "Traceback" not in log
    assert_nothing_is_left(seen)
