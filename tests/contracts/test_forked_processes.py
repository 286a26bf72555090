"""A fork that stands for a new process of `nat`, in tests, is one to all that it touches."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

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


def test_descriptors_keep_their_numbers():
    """A descriptor that a process inherits is the fork's, under its own number."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        process = started("-c", OURS + f"os.write({number}, b'here')", pass_fds=[number])
        theirs.close()
        assert (ours.recv(16), ours.recv(16)) == (b"here", b"")
        assert (process.communicate(timeout=60), process.returncode) == (("", ""), 0)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(3)", 3),
        ("os._exit(255)", 255),
        ("raise ValueError('it fails')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_it_ends_as_the_fork_ends(ending, code):
    """With its exit code, or by its signal; what it printed has arrived."""
    process = started("-c", OURS + f"print('so far', flush=True); {ending}")
    said, complained = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, "so far\n")
    assert ("ValueError: it fails" in complained) == ("it fails" in ending)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_fork(number):
    """A handler sees the signal that the process got; without one, it ends both."""
    handled = f"signal.signal({int(number)}, lambda got, _: sys.exit(got)); print('ready', flush=True); time.sleep(60)"
    process = started("-c", OURS + handled)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == number
    process = started("-c", OURS + "print('ready', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number


def test_a_signal_that_the_parent_ignores_stays_ignored():
    """As for programs that a shell starts in the background."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = started("-c", OURS + "os.kill(os.getpid(), signal.SIGHUP); print('lives')")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.communicate(timeout=60) == ("lives\n", "")


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


def test_other_conditions_are_not_forked(monkeypatch):
    """A variable that imports read makes a new process, as does a program that is not ours."""
    monkeypatch.setenv("HF_HOME", "/elsewhere")
    assert told("-c", SAYS)["torch"] is False
    monkeypatch.delenv("HF_HOME")
    process = started("-c", "import os; print(os.getpid())")
    assert process.communicate(timeout=60)[0] == f"{process.pid}\n"


def test_without_the_process_to_fork_a_new_one_starts(monkeypatch, tmp_path):
    """Nobody listens at the address, so Python goes on by itself."""
    monkeypatch.setenv("TESTS_FORK_NAT_AT", str(tmp_path / "nobody"))
    seen = told("-c", SAYS)
    assert seen["pid"] == seen["started"]


def test_the_module_runs_as_the_program():
    """`python -m nat.backend` refuses wrong arguments with its own words."""
    process = started("-P", "-m", "nat.backend", "--model", "m")
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "use `nat backend serve`" in complained


def test_randomness_differs():
    """Two forks draw other numbers, as two processes do."""
    program = OURS + "import random, numpy; print(random.random(), numpy.random.random())"
    assert Path(os.environ["TESTS_FORK_NAT_AT"]).is_socket()
    first, second = (started("-c", program).communicate(timeout=60)[0].split() for _ in range(2))
    assert len({*first, *second}) == 4
