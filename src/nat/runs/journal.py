"""The journal: one SQLite file per run that records everything the run did, consistent at any moment.

Each `record_*` call is one transaction; when it returns, its records survive a crash of the process or the machine. The
files that people read are derived from the journal (`nat.runs.folder`), so they cannot disagree.

WAL mode lets a dashboard read while the run writes. `synchronous=FULL`, because in WAL mode `NORMAL` may
lose the last transactions when the power fails, and a training job that was submitted and then forgotten
would be trained twice; a commit costs one fsync, and there are a few of them in an epoch.
"""

import errno
import sqlite3
import zlib
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
from nat.wire.json import json_text, without_surrogates
from nat.wire.training import TrainingJob

M = TypeVar("M", bound=BaseModel)

JOURNAL_NAME = "journal.sqlite"
_OF_SAMPLING = ("example_id", "generation", "policy_versions", "untrainable_calls", "untempered_calls")
"""Fields of a rollout's record, which has those that are not empty."""
SCHEMA_VERSION = 5
"""Stored in SQLite's `user_version`; a journal of another version is refused. Releases up to 0.6 wrote 1 to 4."""

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rollouts (
    phase TEXT NOT NULL, epoch INTEGER NOT NULL, example_id TEXT NOT NULL, generation INTEGER NOT NULL,
    reward REAL, left_out TEXT, record TEXT NOT NULL, rows BLOB, PRIMARY KEY (phase, epoch, example_id, generation));
CREATE INDEX outcomes ON rollouts (phase, epoch, length(example_id), example_id, generation, reward, left_out);
CREATE TABLE jobs (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE batches (llm TEXT NOT NULL, job TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (llm, job));
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE validations (epoch INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE failures (way TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE kept (
    phase TEXT NOT NULL, epoch INTEGER NOT NULL, pass INTEGER NOT NULL, evaluator TEXT NOT NULL, item TEXT NOT NULL,
    record BLOB NOT NULL, PRIMARY KEY (phase, epoch, pass, evaluator, item));
"""

_LEVEL = 1
"""Of zlib; higher levels save a few percent and take several times as long."""
_PHASE = "phase/"
"""Names of the facts about phases begin with it."""
_ERRNO = {"FULL": errno.ENOSPC, "IOERR": errno.EIO, "READONLY": errno.EACCES, "CANTOPEN": errno.EACCES}
"""The system's error codes behind SQLite's."""
_BUSY_SECONDS = 30.0
"""How long a writer waits for another writer before it fails."""


class JournalFile:
    """The SQLite file: its queries and transactions; what is wrong with it is a `JournalError`."""

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
    log = path.with_name(f"{path.name}-wal")  # with transactions, if the run is going on or was killed
    if mode == "ro" and not (log.exists() and log.stat().st_size):
        uri += "&immutable=1"  # else SQLite would create its log and index, and leave them there
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


class Journal:
    """An open journal; a context manager that closes it. Use it from the thread that opened it."""

    def __init__(self, run_dir: Path, file: JournalFile) -> None:
        self.run_dir = run_dir
        self._file = file

    @classmethod
    def create(cls, run_dir: Path, run_id: str, config_text: str, *, created_at: datetime) -> Self:
        """Create the journal of a new run in an existing folder that has none."""
        path = run_dir / JOURNAL_NAME
        if path.exists():
            raise JournalError(f"{path} exists already", hint="Give the new run another id.")
        journal = cls(run_dir, JournalFile.create(path))
        info = RunInfo(run_id=run_id, created_at=created_at, state=RunState.RUNNING, config_text=config_text)
        with journal._file.transaction() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            _insert(connection, "facts", "info", info)
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
        file, version = JournalFile.open(path, read_only=read_only)
        if version != SCHEMA_VERSION:
            file.close()
            made = "0.6 or earlier" if version < SCHEMA_VERSION else "a later one"
            raise JournalError(
                f"{path} is of another release: {made}"
                if version
                else f"{path} is empty: its run was killed as it began",
                hint="begin a new run; the release that wrote a journal reads it",
            )
        return cls(run_dir, file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    # Writing. A record replaces an earlier one with the same key, so a repeated step is not counted twice.

    def record_rollouts(self, phase: Phase, epoch: int, records: Iterable[RolloutRecord]) -> int:
        """Write all `records`, which may come from a generator, or none if one fails; return their number.

        The first rollout of each kind of failure is kept with its traceback.
        """
        failures: dict[str, FirstFailure] = {}

        def row(record: RolloutRecord) -> tuple[str | int | float | bytes | None, ...]:
            if (failure := first_failure(record, phase, epoch)) is not None:
                failures.setdefault(without_surrogates(failure.way), failure)
            rows = record.model_dump_json(include={"rows"}, exclude_defaults=True)
            rest = record.model_copy(update={"rows": []})
            example_id, text = without_surrogates(record.example_id), _line(rest, exclude_defaults=True)
            left_out, packed = record.left_out and record.left_out.value, zlib.compress(rows.encode(), _LEVEL)
            return phase.value, epoch, example_id, record.generation, record.reward, left_out, text, packed

        with self._file.transaction() as connection:
            cursor = connection.executemany(
                "INSERT OR REPLACE INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(row, records)
            )
            firsts = [(way, _line(failure)) for way, failure in failures.items()]
            connection.executemany("INSERT OR IGNORE INTO failures VALUES (?, ?)", firsts)
            return cursor.rowcount

    def record_job(self, record: JobRecord) -> None:
        with self._file.transaction() as connection:
            row = (record.id, record.epoch, _line(record))
            connection.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", row)

    def keep_batch(self, llm: str, job: TrainingJob, *, needed_from: str | None) -> None:
        """Keep what is sent to train an LLM; jobs before `needed_from`, which no restart needs, go."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM batches WHERE llm = ? AND job < ?", (llm, needed_from or ""))
            row = (llm, job.id, json_text(job, exclude_unset=True))
            connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", row)

    def forget_batches(self, llm: str, job_ids: Iterable[str]) -> None:
        """Forget batches that must not be trained again."""
        with self._file.transaction() as connection:
            rows = ((llm, job_id) for job_id in job_ids)
            connection.executemany("DELETE FROM batches WHERE llm = ? AND job = ?", rows)

    def prune(self) -> None:
        """Forget all batches, and give their disk back."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM batches")
        self._file.connection.execute("VACUUM")

    def record_epoch(self, record: EpochRecord) -> None:
        """Record an epoch; what was kept of its rollouts is not needed any more."""
        with self._file.transaction() as connection:
            _insert(connection, "epochs", record.epoch, record)
            _forget_kept(connection, Phase.TRAIN, record.epoch)

    def record_validation(self, record: ValidationRecord) -> None:
        """Record a validation; what was kept of its rollouts is not needed any more.

        Of the one before training it stays until `forget_kept`, since later answers may be compared with these.
        """
        with self._file.transaction() as connection:
            _insert(connection, "validations", record.epoch, record)
            if record.epoch > 0:
                _forget_kept(connection, Phase.VALIDATION, record.epoch)

    def keep(self, phase: Phase, epoch: int, records: Mapping[tuple[int, str, str], bytes]) -> None:
        """Keep what passes have finished until their epoch is recorded, by pass, evaluator and item; all or nothing.

        It survives a crash of the process. One of the machine may lose it, until the next record of another kind.
        """
        with self._file.transaction(synchronous="NORMAL") as connection:
            rows = [(phase.value, epoch, *map(without_surrogates, key), each) for key, each in records.items()]
            connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?)", rows)

    def forget_kept(self, phase: Phase, epoch: int) -> None:
        """Forget what was kept of these rollouts."""
        with self._file.transaction() as connection:
            _forget_kept(connection, phase, epoch)

    def record_summary(self, summary: RunSummary) -> None:
        self._put("facts", "summary", summary)

    def record_phase(self, phase: TrainingPhase) -> None:
        """Record that a phase of training begins."""
        self._put("facts", f"{_PHASE}{phase.first_epoch:08d}", phase)

    def record_identity(self, identity: RunIdentity) -> None:
        self._put("facts", "identity", identity)

    def record_config(self, config_text: str) -> None:
        """Record the configuration that the run goes on with, in place of the one before."""
        self._put("facts", "info", self.info().model_copy(update={"config_text": config_text}))

    def record_best(self, best: BestEpoch) -> None:
        self._put("facts", "best", best)

    def set_state(self, state: RunState, *, at: datetime, message: str | None = None) -> None:
        """Set the run's state; a final state stores the time and the reason."""
        finished_at = None if state is RunState.RUNNING else at
        info = self.info().model_copy(update={"state": state, "message": message, "finished_at": finished_at})
        self._put("facts", "info", info)

    def _put(self, table: str, key: int | str, record: BaseModel) -> None:
        with self._file.transaction() as connection:
            _insert(connection, table, key, record)

    # Reading.

    def info(self) -> RunInfo:
        return self._fact(RunInfo, "info") or self._read(RunInfo, "null")

    def identity(self) -> RunIdentity | None:
        """What the run depends on, as it was when it began."""
        return self._fact(RunIdentity, "identity")

    def summary(self) -> RunSummary | None:
        return self._fact(RunSummary, "summary")

    def phases(self) -> list[TrainingPhase]:
        """The phases of training that have begun, in order; empty in a run without phases."""
        rows = self._file.select("SELECT record FROM facts WHERE name GLOB ? ORDER BY name", f"{_PHASE}*")
        return [self._read(TrainingPhase, text) for (text,) in rows]

    def best(self) -> BestEpoch | None:
        """The best weights so far."""
        return self._fact(BestEpoch, "best")

    def epochs(self) -> list[EpochRecord]:
        return list(self.each_epoch())

    def epoch(self, epoch: int) -> EpochRecord | None:
        """The record of an epoch, if it has finished."""
        return self._one(EpochRecord, "SELECT record FROM epochs WHERE epoch = ?", epoch)

    def num_epochs(self) -> int:
        """Finished epochs."""
        return sum(1 for _ in self._file.select("SELECT epoch FROM epochs"))

    def each_epoch(self, first: int = 0) -> Iterator[EpochRecord]:
        """One at a time from the `first` on, since those of a long run take megabytes."""
        rows = self._file.select("SELECT record FROM epochs WHERE epoch >= ? ORDER BY epoch", first)
        return (self._read(EpochRecord, text) for (text,) in rows)

    def validations(self) -> list[ValidationRecord]:
        return list(self.each_validation())

    def each_validation(self, first: int = 0) -> Iterator[ValidationRecord]:
        """Those after `first` epochs and later."""
        rows = self._file.select("SELECT record FROM validations WHERE epoch >= ? ORDER BY epoch", first)
        return (self._read(ValidationRecord, text) for (text,) in rows)

    def validation(self, epoch: int) -> ValidationRecord | None:
        """The validation after `epoch` epochs, if there was one."""
        return self._one(ValidationRecord, "SELECT record FROM validations WHERE epoch = ?", epoch)

    def jobs(self, epoch: int | None = None) -> list[JobRecord]:
        """All of them, or those of an epoch."""
        own, values = ("", ()) if epoch is None else ("WHERE epoch = ?", (epoch,))
        rows = self._file.select(f"SELECT record FROM jobs {own} ORDER BY rowid", *values)  # noqa: S608 - our own words
        return [self._read(JobRecord, text) for (text,) in rows]

    def job(self, job_id: str) -> JobRecord | None:
        """One of them, if the run has submitted it."""
        rows = self._file.select("SELECT record FROM jobs WHERE id = ?", job_id)
        return next((self._read(JobRecord, text) for (text,) in rows), None)

    def batches(self, llm: str) -> list[str]:
        """The jobs of an LLM whose batches are kept, in the order of their epochs."""
        return [job_id for (job_id,) in self._file.select("SELECT job FROM batches WHERE llm = ? ORDER BY job", llm)]

    def batch(self, llm: str, job_id: str) -> TrainingJob | None:
        """A job as it was sent, if its batch is kept."""
        rows = self._file.select("SELECT record FROM batches WHERE llm = ? AND job = ?", llm, job_id)
        return next((self._read(TrainingJob, text) for (text,) in rows), None)

    def each_job_backwards(self) -> Iterator[JobRecord]:
        """One at a time, the last one first."""
        rows = self._file.select("SELECT record FROM jobs ORDER BY rowid DESC")
        return (self._read(JobRecord, text) for (text,) in rows)

    def failures(self) -> list[FirstFailure]:
        """The first rollout of each kind of failure, in the order of time."""
        rows = self._file.select("SELECT record FROM failures ORDER BY rowid")
        return [self._read(FirstFailure, text) for (text,) in rows]

    def played(self, phase: Phase) -> list[int]:
        """The epochs that have rollouts, ascending."""
        rows = self._file.select("SELECT DISTINCT epoch FROM rollouts WHERE phase = ? ORDER BY epoch", phase.value)
        return [epoch for (epoch,) in rows]

    def kept(self, phase: Phase, epoch: int) -> dict[tuple[int, str, str], bytes]:
        """What was kept of an epoch or validation, by pass, evaluator and item."""
        query = "SELECT pass, evaluator, item, record FROM kept WHERE phase = ? AND epoch = ?"
        rows = self._file.select(query, phase.value, epoch)
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
        rows = self._file.select(
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
        rows = self._file.select(
            "SELECT example_id, generation, reward, left_out FROM rollouts "  # noqa: S608 - our own names
            f"WHERE phase = ? AND epoch = ? {among}ORDER BY length(example_id), example_id, generation",
            phase.value,
            epoch,
            *(examples or ()),
        )
        return [Outcome(*row) for row in rows]

    def sampled(self, phase: Phase, epoch: int) -> Iterator[RolloutRecord]:
        """Like `rollouts`, without texts and tokens: only how and by which weights the answers were sampled."""
        fields = ", ".join(f"'{name}', json_extract(record, '$.{name}')" for name in _OF_SAMPLING)
        order = "length(example_id), example_id, generation"
        without_nulls = f"json_patch('{{}}', json_object({fields}))"
        query = f"SELECT {without_nulls} FROM rollouts WHERE phase = ? AND epoch = ? ORDER BY {order}"  # noqa: S608 - our own names
        for (text,) in self._file.select(query, phase.value, epoch):
            yield self._read(RolloutRecord, text)

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
        for text, packed in self._file.select(query, *given.values()):
            rows = zlib.decompress(packed).decode()
            yield text if rows == "{}" else f"{text[:-1]},{rows[1:]}"

    def _fact(self, kind: type[M], name: str) -> M | None:
        return self._one(kind, "SELECT record FROM facts WHERE name = ?", name)

    def _one(self, kind: type[M], query: str, *values: str | int) -> M | None:
        row = next(self._file.select(query, *values), None)
        return None if row is None else self._read(kind, row[0])

    def _read(self, kind: type[M], text: str) -> M:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            raise JournalError(
                f"{self._file.path} has a record that this release cannot read: {findings_of(error)[0]}",
                hint="read it with the release that wrote it",
            ) from error


@contextmanager
def reading(run_dir: Path) -> Iterator[Journal]:
    """Open the journal of any run to read it; the files of the run do not change.

    Raises:
        JournalError: there is none, or what the block reads is damaged or of another release.

    """
    with Journal.open(run_dir, read_only=True) as journal:
        yield journal


def _line(record: BaseModel, *, exclude_defaults: bool = False) -> str:
    """A record as JSON without secrets, since all files of a run are derived from the journal."""
    return redact_json(json_text(record, exclude_defaults=exclude_defaults))


def _forget_kept(connection: sqlite3.Connection, phase: Phase, epoch: int) -> None:
    connection.execute("DELETE FROM kept WHERE phase = ? AND epoch = ?", (phase.value, epoch))


def _insert(connection: sqlite3.Connection, table: str, key: int | str, record: BaseModel) -> None:
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key, _line(record)))  # noqa: S608 - our own names
