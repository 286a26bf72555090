"""Points at which a process can be killed: each fsync, rename and commit, found by counting, not by a list.

A process with `watch` writes a line for each operation. With a fault, such as `before:17`, it kills itself at that one:
before it, after it, or with the last bytes of the file missing, as a crash of the machine leaves it (`torn`). Or all
operations fail from that one on, as on a disk that is `full` or `readonly`. At `clock`, the time of day is set back.
"""

import errno
import os
import re
import signal
import sqlite3
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from time_machine import travel

LOG, FAULT = "KILLED_{}_LOG", "KILLED_{}_FAULT"
"""Variables of the harness and of the backend, with their names."""
TORN_BYTES = 20
SET_BACK = timedelta(hours=1)
_STATEMENTS = ("COMMIT", "PRAGMA journal_mode", "CREATE TABLE IF NOT EXISTS")
"""What makes SQLite write: a transaction's other statements do not."""
REFUSALS = {
    "full": (errno.ENOSPC, "SQLITE_FULL", "database or disk is full"),
    "readonly": (errno.EROFS, "SQLITE_READONLY", "attempt to write a readonly database"),
}
"""What the system says, and what SQLite does."""
_VARYING = re.compile(r"\d{8}-\d{6}-[0-9a-f]+|(?<=unfinished-)(?!replaced|removed)[^-/]+(-(?=\w))?")


class Faults:
    """Counts the operations of this process."""

    def __init__(self, log: Path, fault: str | None) -> None:
        self._log, self._count, self._lock = log, 0, Lock()
        self._when, _, number = (fault or ":0").partition(":")
        self._number = int(number)

    def passing(self, what: str, operation: Callable[[], Any], tear: Callable[[], None] | None = None) -> Any:
        """Do the operation; die instead, or then, if it is the chosen one."""
        with self._lock:
            self._count += 1
            due = self._count == self._number
            fails = self._when in REFUSALS and self._count >= self._number and is_refused(self._when, what)
            _append(self._log, f"{self._count} {'torn ' if tear else ''}{_VARYING.sub('*', what)}")
        if due and self._when == "clock":
            travel(datetime.now(UTC) - SET_BACK).start()
            return operation()
        if fails:
            raise _refusal(self._when, what)
        if due and self._when == "torn" and tear is not None:
            tear()
        if due and self._when != "after":
            _die()
        result = operation()
        if due:
            _die()
        return result


def watch(name: str) -> None:
    """Count the operations of this process from here on, if the environment asks for it."""
    if (log := os.environ.get(LOG.format(name))) is None:
        return
    faults = Faults(Path(log), os.environ.get(FAULT.format(name)))
    for function in ("replace", "rename"):
        setattr(os, function, partial(_renamed, faults, getattr(os, function)))
    os.unlink = partial(_unlinked, faults, os.unlink)
    os.fsync = partial(_synced, faults, os.fsync)
    sqlite3.connect = partial(sqlite3.connect, factory=_connection_class(faults))


def _renamed(faults: Faults, rename: Callable[..., None], source: Any, target: Any, **more: Any) -> None:
    faults.passing(f"rename {os.fspath(target)}", lambda: rename(source, target, **more))


def _unlinked(faults: Faults, unlink: Callable[..., None], path: Any, **more: Any) -> None:
    if os.path.lexists(path):
        faults.passing(f"unlink {os.fspath(path)}", lambda: unlink(path, **more))
    else:
        unlink(path, **more)


def _synced(faults: Faults, fsync: Callable[[int], None], file: Any) -> None:
    descriptor = file if isinstance(file, int) else file.fileno()
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    faults.passing(f"fsync {path}", lambda: fsync(descriptor), partial(_tear, path) if is_file else None)


def _tear(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, max(0, size - TORN_BYTES))


def _connection_class(faults: Faults) -> type[sqlite3.Connection]:
    class Connection(sqlite3.Connection):
        """Counts what writes."""

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            execute = partial(super().execute, statement, *values)
            if statement.strip().startswith(_STATEMENTS):
                return faults.passing(f"sqlite {statement.split(maxsplit=1)[0]}", execute)
            return execute()

    return Connection


def is_refused(kind: str, what: str) -> bool:
    """True if such a disk refuses the operation: a full one lets files be renamed and deleted."""
    return kind == "readonly" or what.partition(" ")[0] in ("fsync", "sqlite")


def _refusal(kind: str, what: str) -> Exception:
    code, name, words = REFUSALS[kind]
    operation, _, path = what.partition(" ")
    if operation != "sqlite":
        return OSError(code, os.strerror(code), path)
    error = sqlite3.OperationalError(words)
    error.sqlite_errorname = name
    return error


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
