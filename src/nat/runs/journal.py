"""The journal: one SQLite file per run that records everything the run did, consistent at any moment.

Each call that writes is one transaction; when it returns, its records survive a crash of the process or the machine.
The files that people read are derived from the journal (`nat.runs.folder`), so they cannot disagree.

WAL mode lets a dashboard read while the run writes. `synchronous=FULL`, because in WAL mode `NORMAL` may
lose the last transactions when the power fails, and a training job that was submitted and then forgotten
would be trained twice; a commit costs one fsync, and there are a few of them in an epoch.
"""

import errno
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from nat.data_models.rollout_failure import FirstFailure
from nat.errors import JournalError, findings_of
from nat.files import storage_failure
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    Phase,
    RunIdentity,
    RunInfo,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
)
from nat.runs.rollouts import Outcome, RolloutRecord, first_failure
from nat.secrets import redact_json
from nat.wire.json import compressed, decompressed, json_text, without_surrogates
from nat.wire.training import TrainingJob

M = TypeVar("M", bound=BaseModel)
Record = (
    RunInfo
    | RunIdentity
    | TrainingPhase
    | JobRecord
    | EpochRecord
    | ValidationRecord
    | BestEpoch
    | RunSummary
    | FirstFailure
)
R = TypeVar("R", bound=Record)

JOURNAL_NAME = "journal.sqlite"
SCHEMA_VERSION = 6
"""Stored in SQLite's `user_version`; a journal of another version is refused. Releases up to 0.6 wrote 1 to 4."""

_SCHEMA = """
CREATE TABLE records (
    kind TEXT NOT NULL, epoch INTEGER NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (kind, epoch, name));
CREATE TABLE rollouts (
    phase TEXT NOT NULL, epoch INTEGER NOT NULL, example_id TEXT NOT NULL, generation INTEGER NOT NULL,
    reward REAL, left_out TEXT, record TEXT NOT NULL, rows BLOB, PRIMARY KEY (phase, epoch, example_id, generation));
CREATE INDEX outcomes ON rollouts (phase, epoch, length(example_id), example_id, generation, reward, left_out);
CREATE TABLE batches (llm TEXT NOT NULL, job TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (llm, job));
CREATE TABLE kept (
    phase TEXT NOT NULL, epoch INTEGER NOT NULL, pass INTEGER NOT NULL, evaluator TEXT NOT NULL, item TEXT NOT NULL,
    record BLOB NOT NULL, PRIMARY KEY (phase, epoch, pass, evaluator, item));
"""

_ERRNO = {"FULL": errno.ENOSPC, "IOERR": errno.EIO, "READONLY": errno.EACCES, "CANTOPEN": errno.EACCES}
"""The system's error codes behind SQLite's."""
_BUSY_SECONDS = 30.0
"""How long a writer waits for another writer before it fails."""


class Journal:
    """An open journal; a context manager that closes it. Use it from the thread that opened it."""

    def __init__(self, run_dir: Path, mode: str) -> None:
        """Open the file by SQLite's `mode`: `ro`, `rw` or, for a new one, `rwc`."""
        self.run_dir = run_dir
        self._path = run_dir / JOURNAL_NAME
        self._connection = _connect(self._path, mode)
        self._place = _identity(self._path)

    @classmethod
    def create(cls, run_dir: Path, run_id: str, config_text: str, *, created_at: datetime) -> Self:
        """Create the journal of a new run in an existing folder that has none."""
        path = run_dir / JOURNAL_NAME
        if path.exists():
            raise JournalError(f"{path} exists already", hint="Give the new run another id.")
        path.touch(mode=0o600)  # SQLite gives its other files the same mode
        journal = cls(run_dir, "rwc")
        journal._connection.execute("PRAGMA journal_mode=WAL")
        info = RunInfo(run_id=run_id, created_at=created_at, state=RunState.RUNNING, config_text=config_text)
        with journal._transaction() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            _insert(connection, [info])
        return journal

    @classmethod
    def open(cls, run_dir: Path, *, read_only: bool = False) -> Self:
        """Open the journal of an existing run, whether it is running, finished or killed.

        Raises:
            JournalError: there is none, it is damaged, or another release made it.

        """
        path = run_dir / JOURNAL_NAME
        if not path.is_file():
            raise JournalError(
                f"no {JOURNAL_NAME} in {run_dir}", hint="Name the folder of a run, e.g. <output_dir>/latest."
            )
        try:
            journal = cls(run_dir, "ro" if read_only else "rw")
            (version,) = journal._connection.execute("PRAGMA user_version").fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise JournalError(f"{path} cannot be read: {error}", hint="Restore the file from a copy.") from error
        if version != SCHEMA_VERSION:
            journal.close()
            made = "0.6 or earlier" if version < SCHEMA_VERSION else "a later one"
            raise JournalError(
                f"{path} is of another release: {made}"
                if version
                else f"{path} is empty: its run was killed as it began",
                hint="begin a new run; the release that wrote a journal reads it",
            )
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # Writing. A record replaces an earlier one with the same key, so a repeated step is not counted twice.

    def record(self, record: Record) -> None:
        """Write a record of the run as a whole, of a phase, a job, an epoch or a validation.

        What was kept of the rollouts of an epoch or a validation is not needed any more. Of the validation before
        training it stays until `forget_kept`, since later answers may be compared with these.
        """
        with self._transaction() as connection:
            _insert(connection, [record])
            if isinstance(record, EpochRecord):
                _forget_kept(connection, Phase.TRAIN, record.epoch)
            elif isinstance(record, ValidationRecord) and record.epoch > 0:
                _forget_kept(connection, Phase.VALIDATION, record.epoch)

    def record_rollouts(self, phase: Phase, epoch: int, records: Iterable[RolloutRecord]) -> int:
        """Write all `records`, which may come from a generator, or none if one fails; return their number.

        The first rollout of each kind of failure is kept with its traceback.
        """
        failures: dict[str, FirstFailure] = {}

        def row(record: RolloutRecord) -> tuple[str | int | float | bytes | None, ...]:
            if (failure := first_failure(record, phase, epoch)) is not None:
                failures.setdefault(failure.way, failure)
            rows = record.model_dump_json(include={"rows"}, exclude_defaults=True)
            rest = record.model_copy(update={"rows": []})
            example_id, text = without_surrogates(record.example_id), _line(rest, exclude_defaults=True)
            left_out, packed = record.left_out and record.left_out.value, compressed(rows.encode())
            return phase.value, epoch, example_id, record.generation, record.reward, left_out, text, packed

        with self._transaction() as connection:
            cursor = connection.executemany(
                "INSERT OR REPLACE INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(row, records)
            )
            _insert(connection, failures.values(), "IGNORE")
            return cursor.rowcount

    def keep_batch(self, llm: str, job: TrainingJob, *, needed_from: str | None) -> None:
        """Keep what is sent to train an LLM; jobs before `needed_from`, which no restart needs, go."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM batches WHERE llm = ? AND job < ?", (llm, needed_from or ""))
            row = (llm, job.id, json_text(job, exclude_unset=True))
            connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", row)

    def forget_batches(self, llm: str, job_ids: Iterable[str]) -> None:
        """Forget batches that must not be trained again."""
        with self._transaction() as connection:
            rows = ((llm, job_id) for job_id in job_ids)
            connection.executemany("DELETE FROM batches WHERE llm = ? AND job = ?", rows)

    def prune(self) -> None:
        """Forget all batches, and give their disk back."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM batches")
        self._connection.execute("VACUUM")

    def keep(self, phase: Phase, epoch: int, records: Mapping[tuple[int, str, str], bytes]) -> None:
        """Keep what passes have finished until their epoch is recorded, by pass, evaluator and item; all or nothing.

        It survives a crash of the process. One of the machine may lose it, until the next record of another kind.
        """
        with self._transaction(synchronous="NORMAL") as connection:
            rows = [(phase.value, epoch, *map(without_surrogates, key), each) for key, each in records.items()]
            connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?)", rows)

    def forget_kept(self, phase: Phase, epoch: int) -> None:
        """Forget what was kept of these rollouts."""
        with self._transaction() as connection:
            _forget_kept(connection, phase, epoch)

    def record_config(self, config_text: str) -> None:
        """Record the configuration that the run goes on with, in place of the one before."""
        self.record(self.info().model_copy(update={"config_text": config_text}))

    def set_state(self, state: RunState, *, at: datetime, message: str | None = None) -> None:
        """Set the run's state; a final state stores the time and the reason."""
        finished_at = None if state is RunState.RUNNING else at
        self.record(self.info().model_copy(update={"state": state, "message": message, "finished_at": finished_at}))

    # Reading.

    def find(self, kind: type[R], epoch: int = 0, name: str = "") -> R | None:
        """The record of a kind: of the run, or with its `epoch` and a job's id as `name`, of one of them; or None."""
        query = "SELECT record FROM records WHERE kind = ? AND epoch = ? AND name = ?"
        row = next(self._select(query, kind.__name__, epoch, name), None)
        return None if row is None else self._read(kind, row[0])

    def each(self, kind: type[R], first: int = 0, end: int | None = None) -> Iterator[R]:
        """Those of the epochs from `first` to before `end`, one at a time, since those of a long run take megabytes.

        They come by epoch, and those of one epoch in the order in which they were written.
        """
        query = "SELECT record FROM records WHERE kind = ? AND epoch >= ? AND epoch < ? ORDER BY epoch, rowid"
        rows = self._select(query, kind.__name__, first, sys.maxsize if end is None else end)
        return (self._read(kind, text) for (text,) in rows)

    def info(self) -> RunInfo:
        return self.find(RunInfo) or self._read(RunInfo, "null")

    def phases(self) -> list[TrainingPhase]:
        """The phases of training that have begun, in order; empty in a run without phases."""
        return list(self.each(TrainingPhase))

    def epochs(self) -> list[EpochRecord]:
        return list(self.each(EpochRecord))

    def num_epochs(self) -> int:
        """Finished epochs."""
        [(number,)] = self._select("SELECT count(*) FROM records WHERE kind = ?", EpochRecord.__name__)
        return int(number)

    def validations(self) -> list[ValidationRecord]:
        return list(self.each(ValidationRecord))

    def jobs(self, epoch: int | None = None) -> list[JobRecord]:
        """All of them, or those of an epoch."""
        return list(self.each(JobRecord) if epoch is None else self.each(JobRecord, epoch, epoch + 1))

    def batches(self, llm: str) -> list[str]:
        """The jobs of an LLM whose batches are kept, in the order of their epochs."""
        return [job_id for (job_id,) in self._select("SELECT job FROM batches WHERE llm = ? ORDER BY job", llm)]

    def batch(self, llm: str, job_id: str) -> TrainingJob | None:
        """A job as it was sent, if its batch is kept."""
        rows = self._select("SELECT record FROM batches WHERE llm = ? AND job = ?", llm, job_id)
        return next((self._read(TrainingJob, text) for (text,) in rows), None)

    def played(self, phase: Phase) -> list[int]:
        """The epochs that have rollouts, ascending."""
        rows = self._select("SELECT DISTINCT epoch FROM rollouts WHERE phase = ? ORDER BY epoch", phase.value)
        return [epoch for (epoch,) in rows]

    def kept(self, phase: Phase, epoch: int) -> dict[tuple[int, str, str], bytes]:
        """What was kept of an epoch or validation, by pass, evaluator and item."""
        query = "SELECT pass, evaluator, item, record FROM kept WHERE phase = ? AND epoch = ?"
        rows = self._select(query, phase.value, epoch)
        return {(number, name, item): record for number, name, item, record in rows}

    def rollouts(
        self, phase: Phase, epoch: int, example_id: str | None = None, generation: int | None = None
    ) -> Iterator[RolloutRecord]:
        """One at a time, by example and generation, to save memory; of all examples and generations, or of one."""
        lines = self.rollout_lines(phase, epoch, example_id, generation)
        return (self._read(RolloutRecord, line) for line in lines)

    def some_rollouts(self, phase: Phase, epoch: int, most: int) -> Iterator[RolloutRecord]:
        """Like `rollouts`; of an epoch that has more than `most`, about so many: all of some examples."""
        examples = self.examples(phase, epoch)
        total = sum(count for _, count in examples)
        if total <= most:
            yield from self.rollouts(phase, epoch)
            return
        number = max(1, len(examples) * most // total)
        drawn = Random(epoch).sample(range(len(examples)), number)
        own = (self.rollouts(phase, epoch, examples[place][0]) for place in sorted(drawn))
        yield from islice(chain.from_iterable(own), most)

    def examples(self, phase: Phase, epoch: int) -> list[tuple[str, int]]:
        """The examples of an epoch in the order of `rollouts`, each with its number of rollouts."""
        rows = self._select(
            "SELECT example_id, count(*) FROM rollouts WHERE phase = ? AND epoch = ? GROUP BY example_id "
            "ORDER BY length(example_id), example_id",
            phase.value,
            epoch,
        )
        return list(rows)

    def outcomes(self, phase: Phase, epoch: int, examples: Sequence[str] | None = None) -> list[Outcome]:
        """The rewards of an epoch in the order of `rollouts`, without reading texts and tokens.

        With `examples`, at most some hundreds, those of these examples.
        """
        among = "" if examples is None else f"AND example_id IN ({', '.join('?' * len(examples))}) "
        rows = self._select(
            "SELECT example_id, generation, reward, left_out FROM rollouts "  # noqa: S608 - our own names
            f"WHERE phase = ? AND epoch = ? {among}ORDER BY length(example_id), example_id, generation",
            phase.value,
            epoch,
            *(examples or ()),
        )
        return [Outcome(*row) for row in rows]

    def rollout_lines(
        self, phase: Phase, epoch: int, example_id: str | None = None, generation: int | None = None
    ) -> Iterator[str]:
        """Like `rollouts`, each as one line of JSON. Shorter ids come first, so that row 2 is before row 10."""
        key = {"phase": phase.value, "epoch": epoch, "example_id": example_id, "generation": generation}
        given = {column: value for column, value in key.items() if value is not None}
        # Of one example, SQLite would scan the whole index `outcomes` for the longer order.
        order = "length(example_id), example_id, generation" if example_id is None else "generation"
        where = " AND ".join(f"{column} = ?" for column in given)
        query = f"SELECT record, rows FROM rollouts WHERE {where} ORDER BY {order}"  # noqa: S608 - our own names
        for text, packed in self._select(query, *given.values()):
            rows = decompressed(packed).decode()
            yield text if rows == "{}" else f"{text[:-1]},{rows[1:]}"

    def _read(self, kind: type[M], text: str) -> M:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            raise JournalError(
                f"{self._path} has a record that this release cannot read: {findings_of(error)[0]}",
                hint="read it with the release that wrote it",
            ) from error

    def _select(self, query: str, *values: str | int) -> Iterator[Any]:
        """The rows of a query.

        Raises:
            JournalError: they are damaged.

        """
        try:
            for row in self._connection.execute(query, values):  # noqa: UP028 - `yield from` would close the cursor late
                yield row
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the damage
            raise JournalError(
                f"{self._path} is damaged: {error}",
                hint="restore the file from a copy; the other files of the folder were derived from it",
            ) from error

    @contextmanager
    def _transaction(self, *, synchronous: str = "FULL") -> Iterator[sqlite3.Connection]:
        """Commit all writes of the block, or none of them if it fails.

        Raises:
            JournalError: the file is gone, or cannot be written.

        """
        self._check_in_place()
        try:
            self._connection.execute(f"PRAGMA synchronous={synchronous}")
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
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
        if here != self._place:
            raise JournalError(
                f"{self._path} was deleted, moved or replaced during the run",
                hint="Do not change a run's folder before the run has ended. This run's results cannot be recorded.",
            )

    def _not_written(self, error: sqlite3.DatabaseError) -> JournalError:
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
    with Journal.open(run_dir, read_only=True) as journal:
        yield journal


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: the file's identity, whatever its name."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    log = path.with_name(f"{path.name}-wal")  # with transactions, if the run is going on or was killed
    if mode == "ro" and not (log.exists() and log.stat().st_size):
        uri += "&immutable=1"  # else SQLite would create its log and index, and leave them there
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


def _line(record: BaseModel, *, exclude_defaults: bool = False) -> str:
    """A record as JSON without secrets, since all files of a run are derived from the journal."""
    return redact_json(json_text(record, exclude_defaults=exclude_defaults))


def _forget_kept(connection: sqlite3.Connection, phase: Phase, epoch: int) -> None:
    connection.execute("DELETE FROM kept WHERE phase = ? AND epoch = ?", (phase.value, epoch))


def _insert(connection: sqlite3.Connection, records: Iterable[Record], conflict: str = "REPLACE") -> None:
    rows = [(type(each).__name__, *_key(each), _line(each)) for each in records]
    connection.executemany(f"INSERT OR {conflict} INTO records VALUES (?, ?, ?, ?)", rows)  # noqa: S608 - our own words


def _key(record: Record) -> tuple[int, str]:
    """Epoch and name; of a fact about the whole run, 0 and nothing."""
    match record:
        case JobRecord():
            return record.epoch, record.id
        case EpochRecord() | ValidationRecord():
            return record.epoch, ""
        case TrainingPhase():
            return record.first_epoch, ""
        case FirstFailure():
            return 0, without_surrogates(record.way)
    return 0, ""
