"""Run tests with one module's source changed, in a child process: one child at a time, from the main thread.

The child always ends in `os._exit`, so it cannot return into the loop that started it. If it hangs, its alarm or the
parent's deadline ends it with every process that its tests have started.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

_MEMORY = 8 << 30
_IMPORTED = "ignore::pytest.PytestAssertRewriteWarning"  # plugins that were imported before the children
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-W", _IMPORTED)
_GRACE_S = 5
"""Seconds from the child's own alarm until the parent kills it."""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """An import finder that replaces the source of one module."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def get_filename(self, fullname: str) -> str:
        del fullname
        return str(self._path)

    def get_source(self, fullname: str) -> str:
        del fullname
        return self._source


def passes(name: str, path: Path, source: str, tests: Sequence[str], *, limit_s: int) -> bool:
    """True if the tests pass with this source of the module within the limit."""
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already, so its source cannot be changed")
    child = os.fork()
    if child == 0:
        _test(_Changed(name, path, source), tests, limit_s)
    try:
        return _exit_code(child, time.monotonic() + limit_s + _GRACE_S) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def _test(changed: _Changed, tests: Sequence[str], limit_s: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        signal.alarm(limit_s)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.meta_path.insert(0, changed)
        code = int(pytest.main([*_OPTIONS, *tests]))
    finally:
        os._exit(code)


def _exit_code(child: int, until: float) -> int:
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL
