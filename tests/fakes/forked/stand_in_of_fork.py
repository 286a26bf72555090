"""A process that stands for a fork of the zygote's.

Imports of torch and transformers take seconds of each new process. `zygote.py` has done them: it forks a child that
gets this process's descriptors, arguments, environment and folder. This process passes signals on, ends as the child
ends, and takes the child with it when it is killed. If there is no zygote, or if it was started under other
conditions, nothing happens here and Python goes on.
"""

import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ZYGOTE_KILLED = 99
"""Exit code when the zygote has ended before its child; a test has killed it."""
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def stand_for_a_fork(address: str) -> None:
    """Return if there is no fork."""
    inherited = _descriptors()
    ignored = [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    signals = _Signals([number for number in PASSED_ON if number not in ignored])
    zygote = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        zygote.connect(address)
        socket.send_fds(zygote, [json.dumps(_request(inherited, ignored)).encode()], inherited)
        forked = zygote.recv(64) == b"forked"
    except OSError:
        forked = False
    if forked:
        _leave(inherited)
        _stand(zygote, signals)
    zygote.close()
    signals.give_back()


class _Signals:
    """Signals that wait in a pipe until somebody passes them on."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.came, self._comes = os.pipe()
        os.set_blocking(self.came, False)
        os.set_blocking(self._comes, False)
        signal.set_wakeup_fd(self._comes, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in numbers}

    def read(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self.came, 64)
        return b""

    def give_back(self) -> None:
        """Let this process handle them as before, those included that wait."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        waiting = self.read()
        os.close(self.came)
        os.close(self._comes)
        for number in waiting:
            os.kill(os.getpid(), number)


def _descriptors() -> list[int]:
    """Those that this process has inherited."""
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    inherited = []
    for number in numbers:
        with suppress(OSError):  # that of the list itself
            fcntl.fcntl(number, fcntl.F_GETFD)
            inherited.append(number)
    return inherited


def _request(inherited: list[int], ignored: Sequence[int]) -> dict[str, Any]:
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "arguments": sys.orig_argv,
        "environment": {os.fsencode(name).hex(): os.fsencode(value).hex() for name, value in os.environ.items()},
        "folder": str(Path.cwd()),
        "descriptors": inherited,
        "path": sys.path,
        "safe_path": sys.flags.safe_path,
        "ignored": [*map(int, ignored)],
        "umask": umask,
    }


def _leave(inherited: list[int]) -> None:
    """Leave the descriptors to the child: who reads from it sees their end when it ends."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in inherited:
        if descriptor in range(3):
            os.dup2(nowhere, descriptor)
        else:
            os.close(descriptor)


def _stand(zygote: socket.socket, signals: _Signals) -> NoReturn:
    while True:
        ready, _, _ = select.select([signals.came, zygote], [], [])
        if zygote in ready:
            status = zygote.recv(64)
            _end(int(status) if status else ZYGOTE_KILLED)
        for number in signals.read():
            with suppress(OSError):  # the child has ended meanwhile
                zygote.send(b"%d" % number)


def _end(code: int) -> NoReturn:
    """End as the child has ended, by a signal if the code is negative."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
