"""Processes of `nat` and its backend as forks of one that has imported torch, for rules that are not about a start."""

import fcntl
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "forked"
VARIABLE = "TESTS_FORK_NAT_AT"
FORKS = sys.platform == "linux" and os.environ.get("OMP_NUM_THREADS") == "1"
"""False where an import starts threads, which no fork would have; `make test` sets the variable."""
LONGEST_ADDRESS = 100
"""Bytes of a socket's path that every Linux allows."""


@contextmanager
def zygote(folder: Path) -> Iterator[dict[str, str]]:
    """Use the process that is forked until the block ends; gives the variables of processes that are to be forks.

    All processes of this run of the tests use the same: the first starts it, and it ends after the last. Where forks
    are not possible, there are no variables, and processes start as they always do.
    """
    address = folder / "zygote"
    if not FORKS or len(os.fsencode(address)) > LONGEST_ADDRESS:
        yield {}
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as user:
        with (folder / "zygote.busy").open("w") as busy:
            fcntl.flock(busy, fcntl.LOCK_EX)
            if not _used(user, address):
                address.unlink(missing_ok=True)
                with (folder / "zygote.log").open("ab") as log:
                    command = [sys.executable, "-P", str(FOLDER / "zygote.py"), str(address)]
                    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                assert _used(user, address), (folder / "zygote.log").read_text()
        path = os.environ.get("PYTHONPATH")
        yield {VARIABLE: str(address), "PYTHONPATH": os.pathsep.join([str(FOLDER), *([path] if path else [])])}
        ended, _, _ = select.select([user], [], [], 0)
        assert not ended, "a test has killed the process that all tests fork, and so their processes"


def _used(user: socket.socket, address: Path) -> bool:
    """Connect to the process, and be counted among its users; False if there is none."""
    try:
        user.connect(str(address))
        user.send(b"user")
        return user.recv(8) == b"here"
    except OSError:
        return False


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder for this run of the tests, in all its processes; `made_once` fills it."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def forked_processes_of_this_run(shared_folder: Path) -> Iterator[dict[str, str]]:
    """Variables that make forks of processes; empty where this is not possible."""
    with zygote(shared_folder) as variables:
        yield variables


@pytest.fixture
def forked_processes(forked_processes_of_this_run: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of `nat` and its backend are forks of one that has imported torch; not for rules about their start."""
    for name, value in forked_processes_of_this_run.items():
        monkeypatch.setenv(name, value)
