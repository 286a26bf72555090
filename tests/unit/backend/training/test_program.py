"""A program in place of the optimizer steps: its reports, its log, and the end of all its processes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from nat.backend.training.program import Reported, run_program
from nat.errors import UpdateCanceled, UpdateRejected

FORKS = """
import os, sys, time
if os.fork() == 0:
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""


def alive(pid_file: Path) -> bool:
    time.sleep(0.1)  # it is being killed
    ps = ["ps", "-o", "stat=", "-p", pid_file.read_text()]
    state = subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip()
    return state != "" and not state.startswith("Z")


def run(code, tmp_path, *more, seconds=60.0, report=lambda _: None) -> Reported:
    command = [sys.executable, "-c", code, *more]
    return run_program(command, {}, log=tmp_path / "log", seconds=seconds, report=report)


@pytest.mark.parametrize("end", ["", "time.sleep(600)"])
def test_background_processes_end_with_the_program(end, tmp_path):
    """Whether it ends by itself or hangs, no process of its group is left."""
    pid_file = tmp_path / "pid"
    if end:
        with pytest.raises(UpdateRejected, match=r"did not end within 1\.5 s"):
            run(FORKS + end, tmp_path, str(pid_file), seconds=1.5)
    else:
        run(FORKS, tmp_path, str(pid_file))
    assert not alive(pid_file)


def test_a_canceled_program_is_ended(tmp_path):
    """An exception of the report ends it at once."""
    started = time.monotonic()

    def cancel(_: float) -> None:
        raise UpdateCanceled("it was canceled")

    with pytest.raises(UpdateCanceled):
        run("import time; time.sleep(600)", tmp_path, report=cancel)
    assert time.monotonic() - started < 10


def test_reports_are_lines_of_json(tmp_path):
    """Other lines are left alone, and so are numbers that are not finite; the last line may have no end."""
    code = r"""
print('{"progress": 40}'); print('{"step": {"loss": 0.5, "lr": NaN, "name": "x"}}'); print('{"metrics": {"kl": 1}}')
print('hello'); print('{"progress": "half"}'); print('[1]'); print('{'); print('[' * 100000)
print('{"progress": 1%s}' % ('0' * 400)); print('{"metrics": {"a": 2}}', end="")
"""
    found = run(code, tmp_path)
    assert (found.progress, found.steps, found.metrics) == (40.0, [{"loss": 0.5}], {"kl": 1.0, "a": 2.0})
