"""A process that has imported what `nat` and its backend import, and forks itself for those that need it.

    python -P zygote.py SOCKET

It starts no thread, so a fork of it is as good as a new process. It serves the processes of
`sitecustomize.py` while someone who uses it is connected, and ends with the last of them; its children end with it.
"""

import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

IMPORTED = (
    "nat.backend.serve",
    "nat.backend.failures",
    "nat.backend.gguf_reading",
    "nat.art.server.algorithm",
    "nat.cli.main",
    "nat.plugins.register",
    "nat.finetuning.runtime",
    "nat.runs.plot",
    "nat.http.server",
    "openai.resources.chat",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
)
READ_BY_IMPORTS = (
    *("CUDA", "GOMP", "HF_", "HOME", "HUGGING", "KMP", "LANG", "LC_", "LD_", "MALLOC", "MKL", "MPL", "OMP", "OPENBLAS"),
    *("PYTHON", "SAFETENSORS", "TOKENIZERS", "TORCH", "TRANSFORMERS", "TZ"),
)
"""Beginnings of variables that decide what a module or the interpreter is; a process with others is not forked.

XDG_CACHE_HOME is none of them: tests set it for our own caches, which are found when they are used.
"""
TAKEN_OVER = ("PYTHONPATH", "PYTHONUNBUFFERED", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that a fork sets right itself; torch sets the last one when it is imported."""
PATIENCE_SECONDS = 60
LONGEST = 1 << 18
FREE_DESCRIPTORS = 512
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


class Child(NamedTuple):
    pid: int
    descriptor: int
    """Readable once it has ended."""


def conditions(environment: dict[str, str]) -> dict[str, str]:
    """The variables on which imports depend."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_BY_IMPORTS) and name not in TAKEN_OVER
    }


class Zygote:
    """Serves until nobody uses it; `serve` returns in each child, with what was asked for."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._conditions = conditions({**os.environ})
        self._users: set[socket.socket] = set()
        self._children: dict[socket.socket, Child] = {}
        self._had_users = False

    def serve(self) -> dict[str, Any]:
        while self._users or not self._had_users:
            by_end = {child.descriptor: asked for asked, child in self._children.items()}
            sockets = [self._listener, *self._users, *self._children]
            ready, _, _ = select.select([*sockets, *by_end], [], [], None if self._had_users else PATIENCE_SECONDS)
            if not ready and not self._had_users:
                break
            for one in ready:
                if one is self._listener:
                    if (request := self._accept()) is not None:
                        return request
                elif one in by_end:
                    self._ended(by_end[one])
                elif one in self._users:
                    self._users.discard(one)
                    one.close()
                elif one in self._children:
                    self._told(one)
        for child in self._children.values():
            os.kill(child.pid, signal.SIGKILL)
        os._exit(0)

    def _accept(self) -> dict[str, Any] | None:
        asked, _ = self._listener.accept()
        asked.settimeout(PATIENCE_SECONDS)
        descriptors: list[int] = []
        try:
            message, descriptors, _, _ = socket.recv_fds(asked, LONGEST, FREE_DESCRIPTORS)
            if message == b"user":
                asked.send(b"here")
                self._users.add(asked)
                self._had_users = True
                return None
            request = json.loads(message)
            stand_in, _, _ = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            environment = {_text(name): _text(value) for name, value in request["environment"].items()}
            if conditions(environment) != self._conditions or len(descriptors) != len(request["descriptors"]):
                asked.send(b"no")
                asked.close()
                return None
            if (pid := os.fork()) == 0:
                for one in (self._listener, asked, *self._users, *self._children):
                    one.detach()
                given, descriptors = descriptors, []
                _take(dict(zip(request["descriptors"], given, strict=True)))
                return request | {"environment": environment, "stand_in": stand_in}
            self._children[asked] = Child(pid, os.pidfd_open(pid))
            with suppress(OSError):  # it was killed meanwhile, which the next select tells
                asked.send(b"forked")
        except (OSError, ValueError):
            asked.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def _told(self, asked: socket.socket) -> None:
        """Pass a signal on, or end the child of a process that was killed."""
        child = self._children[asked]
        try:
            number = asked.recv(64)
        except OSError:
            number = b""
        os.kill(child.pid, int(number) if number else signal.SIGKILL)
        if not number:
            self._reap(asked)

    def _ended(self, asked: socket.socket) -> None:
        if asked in self._children:
            code = self._reap(asked)
            with suppress(OSError):  # it was killed at the same time
                asked.send(b"%d" % code)
            asked.close()

    def _reap(self, asked: socket.socket) -> int:
        child = self._children.pop(asked)
        _, status = os.waitpid(child.pid, 0)
        os.close(child.descriptor)
        return os.waitstatus_to_exitcode(status)


def _text(hexadecimal: str) -> str:
    return os.fsdecode(bytes.fromhex(hexadecimal))


def _take(descriptors: dict[int, int]) -> None:
    """Keep these descriptors alone, each under the number that its key says."""
    moved = {wanted: fcntl.fcntl(own, fcntl.F_DUPFD, FREE_DESCRIPTORS) for wanted, own in descriptors.items()}
    os.closerange(0, FREE_DESCRIPTORS)
    for wanted, own in moved.items():
        os.dup2(own, wanted)
    os.closerange(FREE_DESCRIPTORS, FREE_DESCRIPTORS + len(moved) + 1)


def _become(request: dict[str, Any]) -> None:
    """Be the process that was asked for, up to its first line."""
    os.setsid()
    os.umask(request["umask"])
    os.chdir(request["folder"])
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    ignored = signal.SIGINT in request["ignored"]
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    made_by_imports = {name: os.environ[name] for name in TAKEN_OVER[2:] if name in os.environ}
    os.environ.clear()
    os.environ.update(made_by_imports | request["environment"])
    sys.modules["sitecustomize"] = sys.modules[__name__]  # it has run; nobody imports it again
    sys.orig_argv[:] = request["arguments"]
    sys.path[:] = request["path"]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _stream(number: int) -> io.TextIOWrapper | None:
    """A standard stream as Python opens it."""
    try:
        os.fstat(number)
    except OSError:
        return None
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
    buffer = raw if unbuffered and number else (io.BufferedReader if number == 0 else io.BufferedWriter)(raw)
    return io.TextIOWrapper(
        buffer,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        line_buffering=number == 2 or raw.isatty(),
        write_through=unbuffered,
    )


def _run(request: dict[str, Any]) -> None:
    """Run the module or the program of the arguments as `__main__`."""
    kind, what, *arguments = [word for word in request["arguments"][1:] if word != "-P"]
    if not request["safe_path"]:
        sys.path.insert(0, "" if kind == "-c" else request["folder"])
    if kind == "-m":
        sys.argv[:] = [what, *arguments]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = ["-c", *arguments]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - what `python -c` does


def main() -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for name in IMPORTED:
        importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.exit(f"an import has started {threads - 1} threads, which no fork would have")
    listener.bind(sys.argv[1])
    listener.listen(64)
    if os.fork() > 0:  # who started this may go on
        os._exit(0)
    os.setsid()
    gc.collect()
    gc.freeze()
    zygote = os.getpid()
    request = Zygote(listener).serve()
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(PR_SET_NAME, b"for %d" % request["stand_in"], 0, 0, 0)
    if os.getppid() != zygote:
        os._exit(1)
    _become(request)
    _run(request)


if __name__ == "__main__":
    main()
