"""The SQLite file of a journal: its queries and transactions. What is wrong with it is a `JournalError`."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from nat.errors import JournalError
from nat.files import storage_failure

_ERRNO = {"FULL": errno.ENOSPC, "IOERR": errno.EIO, "READONLY": errno.EACCES, "CANTOPEN": errno.EACCES}
"""The system's error codes behind SQLite's."""
_BUSY_SECONDS = 30.0
"""How long a writer waits for another writer before it fails."""


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
        file = cls(path, _connect(path, "rwc"))
        file.connection.execute("PRAGMA journal_mode=WAL")
        return file

    @classmethod
    def open(cls, path: Path, *, read_only: bool) -> tuple[Self, int]:
        """Open a file, and give the version of its schema.

        Raises:
            JournalError: it is damaged.

        """
        try:
            connection = _connect(path, "ro" if read_only else "rw")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise JournalError(f"{path} cannot be read: {error}", hint="Restore the file from a copy.") from error
        return cls(path, connection), version

    def close(self) -> None:
        self.connection.close()

    def select(self, query: str, *values: str | int) -> Iterator[Any]:
        """The rows of a query.

        Raises:
            JournalError: they are damaged.

        """
        try:
            for row in self.connection.execute(query, values):  # noqa: UP028 - `yield from` would close the cursor late
                yield row
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise JournalError(
                f"{self.path} is damaged: {error}",
                hint="restore the file from a copy; the other files of the folder were derived from it",
            ) from error

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


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: the file's identity, whatever its name."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    if mode == "ro" and not _has_log(path):
        uri += "&immutable=1"  # else SQLite would create its log and index, and leave them there
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


def _has_log(path: Path) -> bool:
    """True if the write-ahead log has transactions: the run is going on, or was killed."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0
