"""The journal: one SQLite file per run that records everything the run did, consistent at any moment.

Each `record_*` call is one transaction; when it returns, its records survive a crash of the process or the machine. The
files that people read are derived from the journal (`nat.runs.folder`), so they cannot disagree.

WAL mode lets a dashboard read while the run writes. `synchronous=FULL`, because in WAL mode `NORMAL` may
lose the last transactions when the power fails, and a training job that was submitted and then forgotten
would be trained twice; a commit costs one fsync, and there are a few of them in an epoch.
"""

import errno
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from nat.data_models.rollout_failure import FirstFailure
from nat.errors import JournalError, findings_of
from nat.files import storage_failure
from nat.runs.earlier import row_with_spans, with_answers
from nat.runs.packed_rows import pack_rows, unpack_rows
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    Phase,
    RunInfo,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
)
from nat.runs.rollouts import Outcome, RolloutRecord, first_failure
from nat.secrets import redact_json
from nat.wire.json import json_text, parse_json, without_surrogates
from nat.wire.training import TrainingRow

M = TypeVar("M", bound=BaseModel)

JOURNAL_NAME = "journal.sqlite"
SCHEMA_VERSION = 4
"""Stored in SQLite's `user_version`; a journal of an unknown version is refused."""
_ROWS_IN_RECORDS = 2
"""The earliest version that is read: its rollouts have no column for the rows, which are in the records."""

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rollouts (
    phase TEXT NOT NULL, epoch INTEGER NOT NULL, example_id TEXT NOT NULL, generation INTEGER NOT NULL,
    record TEXT NOT NULL, rows BLOB, PRIMARY KEY (phase, epoch, example_id, generation));
CREATE TABLE jobs (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE validations (epoch INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE failures (way TEXT PRIMARY KEY, record TEXT NOT NULL);
"""

_ERRNO = {"FULL": errno.ENOSPC, "IOERR": errno.EIO, "READONLY": errno.EACCES, "CANTOPEN": errno.EACCES}
"""The system's error codes behind SQLite's."""
_BUSY_SECONDS = 30.0
"""How long a writer waits for another writer before it fails."""
_PHASE = "phase/"
"""Names of the facts about phases begin with it."""
_TABLES = ("facts", "rollouts", "jobs", "epochs", "validations", "failures")
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


class Journal:
    """An open journal; a context manager that closes it. Use it from the thread that opened it."""

    def __init__(self, run_dir: Path, connection: sqlite3.Connection) -> None:
        self.run_dir = run_dir
        self._path = run_dir / JOURNAL_NAME
        self._connection = connection
        self._identity = _identity(self._path)
        self._version = SCHEMA_VERSION

    @classmethod
    def create(cls, run_dir: Path, run_id: str, config_text: str, *, created_at: datetime) -> Self:
        """Create the journal of a new run in an existing folder that has none."""
        path = run_dir / JOURNAL_NAME
        if path.exists():
            raise JournalError(f"{path} exists already", hint="Give the new run another id.")
        path.touch(mode=0o600)  # SQLite gives its other files the same mode
        journal = cls(run_dir, _connect(path, "rwc"))
        journal._connection.execute("PRAGMA journal_mode=WAL")
        info = RunInfo(run_id=run_id, created_at=created_at, state=RunState.RUNNING, config_text=config_text)
        with journal._transaction() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            _insert(connection, "facts", "info", info)
        return journal

    @classmethod
    def open(cls, run_dir: Path, *, read_only: bool = False) -> Self:
        """Open the journal of an existing run, whether it is running, finished or killed.

        Raises:
            JournalError: there is none, it is damaged, or its version is unknown; earlier ones can only be read.

        """
        path = run_dir / JOURNAL_NAME
        if not path.is_file():
            raise JournalError(
                f"no {JOURNAL_NAME} in {run_dir}", hint="Name the folder of a run, e.g. <output_dir>/latest."
            )
        try:
            connection = _connect(path, "ro" if read_only else "rw")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if read_only:
                _distrust(connection, path)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise JournalError(f"{path} cannot be read: {error}", hint="Restore the file from a copy.") from error
        earliest = _ROWS_IN_RECORDS if read_only else SCHEMA_VERSION
        if not earliest <= version <= SCHEMA_VERSION:
            connection.close()
            does = f"reads versions {earliest} to" if read_only else "writes version"
            raise JournalError(
                f"{path} has schema version {version}; this program {does} {SCHEMA_VERSION}",
                hint="Read it with the release that wrote it. Version 0 means that the run was killed as it began.",
            )
        journal = cls(run_dir, connection)
        journal._version = version
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # Writing. A record replaces an earlier one with the same key, so a repeated step is not counted twice.

    def record_rollouts(self, phase: Phase, epoch: int, records: Iterable[RolloutRecord]) -> int:
        """Write all `records`, which may come from a generator, or none if one fails; return their number.

        The first rollout of each kind of failure is kept with its traceback.
        """
        failures: dict[str, FirstFailure] = {}

        def row(record: RolloutRecord) -> tuple[str, int, str, int, str, bytes | None]:
            if (failure := first_failure(record, phase, epoch)) is not None:
                failures.setdefault(without_surrogates(failure.way), failure)
            rows = pack_rows(record.rows) if record.rows else None
            rest = record if rows is None else record.model_copy(update={"rows": []})
            example_id, text = without_surrogates(record.example_id), _line(rest, exclude_defaults=True)
            return phase.value, epoch, example_id, record.generation, text, rows

        with self._transaction() as connection:
            cursor = connection.executemany(
                "INSERT OR REPLACE INTO rollouts VALUES (?, ?, ?, ?, ?, ?)", map(row, records)
            )
            firsts = [(way, _line(failure)) for way, failure in failures.items()]
            connection.executemany("INSERT OR IGNORE INTO failures VALUES (?, ?)", firsts)
            return cursor.rowcount

    def record_job(self, record: JobRecord) -> None:
        with self._transaction() as connection:
            row = (record.id, record.epoch, _line(record))
            connection.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", row)

    def record_epoch(self, record: EpochRecord) -> None:
        self._put("epochs", record.epoch, record)

    def record_validation(self, record: ValidationRecord) -> None:
        self._put("validations", record.epoch, record)

    def record_summary(self, summary: RunSummary) -> None:
        self._put("facts", "summary", summary)

    def record_phase(self, phase: TrainingPhase) -> None:
        """Record that a phase of training begins."""
        self._put("facts", f"{_PHASE}{phase.first_epoch:08d}", phase)

    def record_best(self, best: BestEpoch) -> None:
        self._put("facts", "best", best)

    def set_state(self, state: RunState, *, at: datetime, message: str | None = None) -> None:
        """Set the run's state; a final state stores the time and the reason."""
        finished_at = None if state is RunState.RUNNING else at
        info = self.info().model_copy(update={"state": state, "message": message, "finished_at": finished_at})
        self._put("facts", "info", info)

    def _put(self, table: str, key: int | str, record: BaseModel) -> None:
        with self._transaction() as connection:
            _insert(connection, table, key, record)

    # Reading.

    def info(self) -> RunInfo:
        return self._read(RunInfo, self._fact("info") or "null")

    def summary(self) -> RunSummary | None:
        text = self._fact("summary")
        return None if text is None else self._read(RunSummary, text)

    def phases(self) -> list[TrainingPhase]:
        """The phases of training that have begun, in order; empty in a run without phases."""
        rows = self._select("SELECT record FROM facts WHERE name GLOB ? ORDER BY name", f"{_PHASE}*")
        return [self._read(TrainingPhase, text) for (text,) in rows]

    def best(self) -> BestEpoch | None:
        """The best weights so far."""
        text = self._fact("best")
        return None if text is None else self._read(BestEpoch, text)

    def epochs(self) -> list[EpochRecord]:
        return list(self.each_epoch())

    def num_epochs(self) -> int:
        """Finished epochs."""
        return sum(1 for _ in self._select("SELECT epoch FROM epochs"))

    def each_epoch(self, first: int = 0) -> Iterator[EpochRecord]:
        """One at a time from the `first` on, since those of a long run take megabytes."""
        rows = self._select("SELECT record FROM epochs WHERE epoch >= ? ORDER BY epoch", first)
        return (self._read(EpochRecord, text) for (text,) in rows)

    def validations(self) -> list[ValidationRecord]:
        return list(self.each_validation())

    def each_validation(self, first: int = 0) -> Iterator[ValidationRecord]:
        """Those after `first` epochs and later."""
        rows = self._select("SELECT record FROM validations WHERE epoch >= ? ORDER BY epoch", first)
        return (self._read(ValidationRecord, text) for (text,) in rows)

    def validation(self, epoch: int) -> ValidationRecord | None:
        """The validation after `epoch` epochs, if there was one."""
        row = next(self._select("SELECT record FROM validations WHERE epoch = ?", epoch), None)
        return None if row is None else self._read(ValidationRecord, row[0])

    def jobs(self, epoch: int | None = None) -> list[JobRecord]:
        """All of them, or those of an epoch."""
        own, values = ("", ()) if epoch is None else ("WHERE epoch = ?", (epoch,))
        rows = self._select(f"SELECT record FROM jobs {own} ORDER BY rowid", *values)  # noqa: S608 - our own words
        return [self._read(JobRecord, text) for (text,) in rows]

    def failures(self) -> list[FirstFailure]:
        """The first rollout of each kind of failure, in the order of time."""
        return [self._read(FirstFailure, text) for text in self._texts("failures", "rowid")]

    def played(self, phase: Phase) -> list[int]:
        """The epochs that have rollouts, ascending."""
        rows = self._select("SELECT DISTINCT epoch FROM rollouts WHERE phase = ? ORDER BY epoch", phase.value)
        return [self._number(epoch) for (epoch,) in rows]

    def rollouts(self, phase: Phase, epoch: int, example_id: str | None = None) -> Iterator[RolloutRecord]:
        """One at a time, by example and generation, to save memory; with `example_id` those of this example."""
        for text, packed in self._rollouts(phase, epoch, example_id):
            if self._version < SCHEMA_VERSION:
                yield self._earlier(text, packed)
            else:
                record = self._read(RolloutRecord, text)
                yield record if packed is None else record.model_copy(update={"rows": self._unpacked(packed)})

    def examples(self, phase: Phase, epoch: int) -> list[tuple[str, int]]:
        """The examples of an epoch in the order of `rollouts`, each with its number of rollouts."""
        rows = self._select(
            "SELECT example_id, count(*) FROM rollouts WHERE phase = ? AND epoch = ? GROUP BY example_id "
            "ORDER BY length(example_id), example_id",
            phase.value,
            epoch,
        )
        return [(str(example_id), int(count)) for example_id, count in rows]

    def outcomes(self, phase: Phase, epoch: int, examples: Sequence[str] | None = None) -> list[Outcome]:
        """The rewards of an epoch in the order of `rollouts`, without reading texts and tokens.

        With `examples`, at most some hundreds, those of these examples.
        """
        among = "" if examples is None else f"AND example_id IN ({', '.join('?' * len(examples))}) "
        rows = self._select(
            "SELECT example_id, generation, json_extract(record, '$.reward', '$.left_out') FROM rollouts "  # noqa: S608 - our own names
            f"WHERE phase = ? AND epoch = ? {among}ORDER BY length(example_id), example_id, generation",
            phase.value,
            epoch,
            *(examples or ()),
        )
        return [_outcome(example_id, self._number(generation), facts) for example_id, generation, facts in rows]

    def rollout_lines(self, phase: Phase, epoch: int) -> Iterator[str]:
        """Like `rollouts`, each as one line of JSON, of a journal that this release wrote."""
        for text, packed in self._rollouts(phase, epoch):
            yield text if packed is None else f"{text[:-1]},{_rows_json(self._unpacked(packed))[1:]}"

    def _earlier(self, text: str, packed: bytes | None) -> RolloutRecord:
        """The record of a rollout that an earlier release wrote."""
        try:
            record = parse_json(text)
            rows = [TrainingRow.model_validate(row_with_spans(row)) for row in record.get("rows", ())]
            rows = rows if packed is None else self._unpacked(packed)
            found = with_answers(record, [len(row.spans) for row in rows]) | {"rows": []}
            return RolloutRecord.model_validate(found).model_copy(update={"rows": rows})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(self._path, error) from error

    def _rollouts(self, phase: Phase, epoch: int, example_id: str | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Records and packed rows. Shorter ids come first, so that row 2 is before row 10."""
        rows = "NULL" if self._version == _ROWS_IN_RECORDS else "rows"
        one = "" if example_id is None else "AND example_id = ? "
        return self._select(
            f"SELECT record, {rows} FROM rollouts WHERE phase = ? AND epoch = ? {one}"  # noqa: S608 - our own names
            "ORDER BY length(example_id), example_id, generation",
            phase.value,
            epoch,
            *(() if example_id is None else (example_id,)),
        )

    def _unpacked(self, rows: bytes) -> list[TrainingRow]:
        try:
            return unpack_rows(rows)
        except ValueError as error:
            raise _damaged(self._path, error) from error

    def _fact(self, name: str) -> str | None:
        row = next(self._select("SELECT record FROM facts WHERE name = ?", name), None)
        return None if row is None else str(row[0])

    def _texts(self, table: str, order: str) -> Iterator[str]:
        return (text for (text,) in self._select(f"SELECT record FROM {table} ORDER BY {order}"))  # noqa: S608 - our own names

    def _select(self, query: str, *values: str | int) -> Iterator[Any]:
        """The rows of a query.

        Raises:
            JournalError: they are damaged, or more than the file holds: its pages form a loop.

        """
        try:
            yield from self._checked(self._connection.execute(query, values))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise _damaged(self._path, error) from error

    def _checked(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        given, held = 0, 0
        for row in rows:
            given += sum(len(value) if isinstance(value, str | bytes) else 1 for value in row)
            if given > held and given > (held := _size(self._path)):
                raise _damaged(self._path, ValueError("a query gives more than the whole file holds"))
            yield row

    def _read(self, kind: type[M], text: str) -> M:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            raise JournalError(
                f"{self._path} has a record that this release cannot read: {findings_of(error)[0]}",
                hint="read it with the release that wrote it",
            ) from error

    def _number(self, key: object) -> int:
        """A number of a key: SQLite keeps a text in a column of numbers, too."""
        if not isinstance(key, int):
            raise _damaged(self._path, ValueError("an epoch or a generation is no number"))
        return key

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit all writes of the block, or none of them if it fails.

        Raises:
            JournalError: the file is gone, or cannot be written.

        """
        self._check_in_place()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._roll_back()
            raise self._not_written(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # SQLite ends some by itself, such as on a full disk
            self._connection.execute("ROLLBACK")

    def _check_in_place(self) -> None:
        """SQLite would continue to write to a deleted file, and all of it would be lost."""
        try:
            here = _identity(self._path)
        except FileNotFoundError:
            here = None
        if here != self._identity:
            raise JournalError(
                f"{self._path} was deleted, moved or replaced during the run",
                hint="Do not change a run's folder before the run has ended. This run's results cannot be recorded.",
            )

    def _not_written(self, error: sqlite3.OperationalError) -> JournalError:
        code = error.sqlite_errorname.split("_")[1]  # SQLITE_IOERR_WRITE is an I/O error, too
        failure = storage_failure(OSError(_ERRNO.get(code, 0), ""))
        return JournalError(
            f"{self._path} cannot be written: {error}",
            hint=failure.hint if failure else "check whether another process has locked the file",
        )


@contextmanager
def reading(run_dir: Path) -> Iterator[Journal]:
    """Open the journal of any run to read it; the files of the run do not change.

    Raises:
        JournalError: there is none, or what the block reads is damaged or of another release.

    """
    try:
        with Journal.open(run_dir, read_only=True) as journal:
            yield journal
    except OverflowError as error:  # from an impossible count
        raise _damaged(run_dir / JOURNAL_NAME, error) from error


def _damaged(path: Path, error: Exception) -> JournalError:
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


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    if mode == "ro" and not _has_log(path):
        uri += "&immutable=1"  # else SQLite would create its log and index, and leave them there
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _distrust(connection: sqlite3.Connection, path: Path) -> None:
    """Let queries read stored values only, and end: a journal from elsewhere may compute values, without an end.

    Raises:
        DatabaseError: a table has a computed column.

    """
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(_size(path), _SURE_BYTES))
    connection.set_progress_handler(lambda: 1, _MOST_STEPS)
    for table in _TABLES:
        if any(hidden for *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})")):
            raise sqlite3.DatabaseError(f"its table {table} has a computed column")
    connection.set_authorizer(lambda *access: sqlite3.SQLITE_OK if access[-1] is None else sqlite3.SQLITE_DENY)


def _has_log(path: Path) -> bool:
    """True if the write-ahead log has transactions: the run is going on, or was killed."""
    log = _log(path)
    return log.exists() and log.stat().st_size > 0


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    """Bytes of the journal with its log."""
    return sum(file.stat().st_size for file in (path, _log(path)) if file.exists())


def _line(record: BaseModel, *, exclude_defaults: bool = False) -> str:
    """A record as JSON without secrets, since all files of a run are derived from the journal."""
    return redact_json(json_text(record, exclude_defaults=exclude_defaults))


def _outcome(example_id: str, generation: int, facts: str) -> Outcome:
    """An outcome; `facts` is a JSON list of its reward and cause, and a reward of NaN is a text there."""
    reward, left_out = parse_json(facts)
    known = isinstance(reward, int | float)
    return Outcome(str(example_id), generation, float(reward) if known else None, left_out and str(left_out))


def _rows_json(rows: list[TrainingRow]) -> str:
    """A JSON object with the rows alone."""
    record = RolloutRecord(example_id="", generation=0, rows=rows)
    return record.model_dump_json(include={"rows"}, exclude_defaults=True)


def _insert(connection: sqlite3.Connection, table: str, key: int | str, record: BaseModel) -> None:
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key, _line(record)))  # noqa: S608 - our own names
