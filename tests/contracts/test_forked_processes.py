"""A fork that stands for a new process of `nat`, in tests, is one to all that it touches."""

import json
import signal
import subprocess
import sys

import pytest

from fakes.forked_processes import FORKS
from fakes.processes import await_end, ended, started_as

pytestmark = [
    pytest.mark.usefixtures("forked_processes"),
    pytest.mark.skipif(not FORKS, reason="processes are forks on Linux, with OMP_NUM_THREADS=1 as in `make test`"),
]
OURS = "import nat.cli.main, os, sys, json, signal, time; "
"""A program that could be a fork."""
SAYS = OURS + (
    "print(json.dumps({'argv': sys.argv, 'cwd': os.getcwd(), 'mask': os.umask(0), 'name': __name__, 'pid': os.getpid(),"
    "'torch': 'torch' in sys.modules, 'session': os.getsid(0) == os.getpid(), 'mine': os.environ.get('MINE'),"
    "'read': sys.stdin.read(), 'found': sys.path[0], 'descriptors': sorted(map(int, os.listdir('/proc/self/fd')))}));"
    "print('to stderr', file=sys.stderr)"
)


def started(*arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def told(*arguments: str, given: str = "", **options: object) -> dict[str, object]:
    process = started(*arguments, stdin=subprocess.PIPE, **options)
    said, complained = process.communicate(given, timeout=60)
    assert (process.returncode, complained) == (0, "to stderr\n")
    return json.loads(said) | {"started": process.pid}


@pytest.mark.slow
def test_it_has_what_a_new_process_has(tmp_path, monkeypatch):
    """Arguments, folder, umask, variables, the three streams and no descriptor more."""
    monkeypatch.setenv("MINE", "\udcff ü")
    seen = told("-c", SAYS, "one", "two words", given="a line", cwd=tmp_path, umask=0o027, start_new_session=True)
    monkeypatch.delenv("TESTS_FORK_NAT_AT")
    new = told("-c", SAYS, "one", "two words", given="a line", cwd=tmp_path, umask=0o027, start_new_session=True)
    assert seen["torch"] is True
    assert new["torch"] is False
    assert new["pid"] == new["started"]
    assert seen["pid"] != seen["started"]
    assert {**seen, "torch": None, "pid": 0, "started": 0} == {**new, "torch": None, "pid": 0, "started": 0}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_fork(number):
    """A handler sees the signal that the process got."""
    handled = f"signal.signal({int(number)}, lambda got, _: sys.exit(got)); print('ready', flush=True); time.sleep(60)"
    process = started("-c", OURS + handled)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == number


@pytest.mark.slow
def test_it_ends_with_the_process_that_stands_for_it():
    """A kill, which nobody can pass on, ends the fork too."""
    process = started("-c", OURS + "print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    fork = int(process.stdout.readline())
    assert not ended(fork)
    assert started_as(fork) == process.pid
    process.kill()
    process.communicate(timeout=60)
    await_end(fork)
    assert ended(fork)
