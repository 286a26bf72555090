"""The SQLite file of a journal: opened to be written, or to be read without trust; its queries and transactions.

What is wrong with the file is a `JournalError` that says what to do. The tables and their records are the journal's.
"""

import errno
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from nat.errors import JournalError
from nat.files import storage_failure

_ERRNO = {"FULL": errno.ENOSPC, "IOERR": errno.EIO, "READONLY": errno.EACCES, "CANTOPEN": errno.EACCES}
"""The system's error codes behind SQLite's."""
_BUSY_SECONDS = 30.0
"""How long a writer waits for another writer before it fails."""
_MOST_STEPS = 10**8
"""SQLite's steps for a query of a reader, a few seconds: some ten for each row that it looks at."""
_MEANINGS = {
    "interrupted": "a query does not end",
    "prohibited": "it has a view in place of a table",
    "not authorized": "it has a view in place of a table",
}
"""What SQLite's words mean here."""
_SURE_BYTES = 2**26
"""A reader accepts values of this size from any file, so that a running run may add them meanwhile."""


class JournalFile:
    """An open file. Use it from the thread that opened it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self._identity = _identity(path)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Open an empty file, to write it in WAL mode."""
        path.touch(mode=0o600)  # SQLite gives its other files the same mode
        connection, _ = _connect(path, "rwc")
        file = cls(path, connection)
        file.connection.execute("PRAGMA journal_mode=WAL")
        return file

    @classmethod
    def open(cls, path: Path, *, tables: Sequence[str], read_only: bool) -> tuple[Self, int]:
        """Open a file with these tables and give its version, too.

        Raises:
            JournalError: it is damaged.

        """
        try:
            connection, version = _connect(path, "ro" if read_only else "rw", tables)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise JournalError(f"{path} cannot be read: {error}", hint="Restore the file from a copy.") from error
        return cls(path, connection), version

    def close(self) -> None:
        self.connection.close()

    def select(self, query: str, *values: str | int) -> Iterator[Any]:
        """The rows of a query.

        Raises:
            JournalError: they are damaged, or more than the file holds: its pages form a loop.

        """
        try:
            yield from self._checked(self.connection.execute(query, values))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise self.damaged(error) from error

    def _checked(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        given, held = 0, 0
        for row in rows:
            given += sum(len(value) if isinstance(value, str | bytes) else 1 for value in row)
            if given > held and given > (held := _size(self.path)):
                self._check_in_place()
                raise self.damaged(ValueError("a query gives more than the whole file holds"))
            yield row

    @contextmanager
    def transaction(self, *, synchronous: str = "FULL") -> Iterator[sqlite3.Connection]:
        """Commit all writes of the block, or none of them if it fails.

        Raises:
            JournalError: the file is gone, or cannot be written.

        """
        self._check_in_place()
        try:
            self.connection.execute(f"PRAGMA synchronous={synchronous}")
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection
            self.connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise self._not_written(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self.connection.in_transaction:  # SQLite ends some by itself, such as on a full disk
            self.connection.execute("ROLLBACK")

    def _check_in_place(self) -> None:
        """SQLite would continue to write to a deleted file, and all of it would be lost."""
        try:
            here = _identity(self.path)
        except FileNotFoundError:
            here = None
        if here != self._identity:
            raise JournalError(
                f"{self.path} was deleted, moved or replaced during the run",
                hint="Do not change a run's folder before the run has ended. This run's results cannot be recorded.",
            )

    def _not_written(self, error: sqlite3.DatabaseError) -> JournalError:
        code = error.sqlite_errorname.split("_")[1]  # SQLITE_IOERR_WRITE is an I/O error, too
        failure = storage_failure(OSError(_ERRNO.get(code, 0), ""))
        return JournalError(
            f"{self.path} cannot be written: {error}",
            hint=failure.hint if failure else "check whether another process has locked the file",
        )

    def damaged(self, error: Exception) -> JournalError:
        """The error to raise where the file's contents cause this one."""
        return damaged(self.path, error)


def damaged(path: Path, error: Exception) -> JournalError:
    """Likewise, for a file that is not open."""
    seen = str(error)
    reason = next((meaning for words, meaning in _MEANINGS.items() if words in seen), seen)
    return JournalError(
        f"{path} is damaged: {reason}",
        hint="restore the file from a copy; the other files of the folder were derived from it and may be whole",
    )


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: the file's identity, whatever its name."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _connect(path: Path, mode: str, tables: Sequence[str] = ()) -> tuple[sqlite3.Connection, int]:
    """A connection to a file, and the version of its schema."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    if mode == "ro" and not _has_log(path):
        uri += "&immutable=1"  # else SQLite would create its log and index, and leave them there
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if mode == "ro":
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(_size(path), _SURE_BYTES))
            connection.set_progress_handler(lambda: 1, _MOST_STEPS)
        _check_stored(connection, tables)
        if mode == "ro":
            connection.set_authorizer(_only_stored)
        else:
            _check_inert(connection)
    except BaseException:
        connection.close()
        raise
    return connection, version


def _check_stored(connection: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Raise DatabaseError if a table has a computed column."""
    for table in tables:
        if any(hidden for *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})")):
            raise sqlite3.DatabaseError(f"its table {table} has a computed column")


def _check_inert(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError if a record that is written would have SQLite do anything else."""
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"):
        raise sqlite3.DatabaseError(f"it has the {kind} {name!r}")


def _only_stored(*access: object) -> int:
    """Queries read stored values only: a journal from elsewhere may compute values, without an end."""
    return sqlite3.SQLITE_OK if access[-1] is None else sqlite3.SQLITE_DENY


def _has_log(path: Path) -> bool:
    """True if the write-ahead log has transactions: the run is going on, or was killed."""
    log = _log(path)
    return log.exists() and log.stat().st_size > 0


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    """Bytes of the journal with its log."""
    return sum(file.stat().st_size for file in (path, _log(path)) if file.exists())
