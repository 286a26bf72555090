import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from fakes.run_records import NOON, epoch_record, job_record, rollout_record, validation_record
from fakes.training_rows import row_of
from nat.errors import JournalError
from nat.runs.folder import create_run_folder
from nat.runs.journal import JOURNAL_NAME, Journal, reading
from nat.runs.records import Phase, RunState, RunSummary
from nat.runs.rollouts import AnswerRecord, LeftOutCause
from nat.wire.training import JobStatus


@pytest.fixture
def journal(tmp_path) -> Iterator[Journal]:
    with Journal.create(tmp_path, "run-1", "seed: 0\n", created_at=NOON) as opened:
        yield opened


def reopened(journal: Journal) -> Journal:
    journal.close()
    return Journal.open(journal.run_dir, read_only=True)


def test_records_are_read_back_by_another_process(journal):
    """Every kind of record is unchanged."""
    row = row_of([1, 2, 3], [None, -0.5, -1e-17])
    rollout = rollout_record("a", rows=[row], messages=[{"role": "user", "content": "hé\n"}], functions={"f": 2})
    epoch = epoch_record(curriculum_state={"included_groups": [1]}, metrics={"train/grad_norm": 0.25})
    validation = validation_record(0, {"x": 0.5, "y": None})
    job = job_record(status=JobStatus.COMPLETED, finished_at=NOON)
    summary = RunSummary(
        run_id="run-1", before=0.1, after=0.9, interval=(0.5, 0.9), epochs=1, seconds=2, tokens_trained=3
    )
    journal.record_rollouts(Phase.TRAIN, 0, [rollout])
    journal.record_epoch(epoch)
    journal.record_validation(validation)
    journal.record_job(job)
    journal.record_summary(summary)
    with reopened(journal) as read:
        assert list(read.rollouts(Phase.TRAIN, 0)) == [rollout]
        assert read.epochs() == [epoch]
        assert read.validations() == [validation]
        assert read.jobs() == [job]
        assert read.summary() == summary
        assert read.info().config_text == "seed: 0\n"


def test_metrics_that_are_not_numbers_survive(journal):
    """A gradient norm of NaN explains a crash, so the journal keeps it."""
    journal.record_epoch(epoch_record(metrics={"train/grad_norm": float("nan"), "train/kl": float("inf")}))
    metrics = journal.epochs()[0].metrics
    assert metrics["train/grad_norm"] != metrics["train/grad_norm"]
    assert metrics["train/kl"] == float("inf")


def test_the_same_key_again_replaces(journal):
    """A step that is repeated after an interruption is counted once."""
    for reward in (0.0, 1.0):
        journal.record_rollouts(Phase.TRAIN, 0, [rollout_record(reward=reward)])
        journal.record_epoch(epoch_record(0, reward))
    for status in (JobStatus.PENDING, JobStatus.COMPLETED):
        journal.record_job(job_record(status=status))
    assert [r.reward for r in journal.rollouts(Phase.TRAIN, 0)] == [1.0]
    assert [e.avg_reward for e in journal.epochs()] == [1.0]
    assert [j.status for j in journal.jobs()] == [JobStatus.COMPLETED]


def test_the_first_failure_of_each_kind_is_kept(journal):
    """Later ones, of the same batch or epochs after it, do not replace the first, whose traceback is read first."""

    def failed(example_id: str, *, line: int):
        place = f'  File "agent.py", line {line}'
        return rollout_record(example_id, left_out=LeftOutCause.FAILED, traceback=f"{place}\nE: {example_id}")

    journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a"), failed("b", line=1), failed("c", line=1)])
    journal.record_rollouts(Phase.TRAIN, 3, [failed("d", line=1), failed("e", line=2)])
    assert [each.rollout for each in journal.failures()] == [
        "training, epoch 1, example b, generation 0",
        "training, epoch 4, example e, generation 0",
    ]
    assert [each.traceback[-1] for each in journal.failures()] == ["b", "e"]


def test_a_batch_of_rollouts_is_written_completely_or_not_at_all(journal):
    """An error halfway through the records writes none of them."""

    def breaking() -> Iterator:
        yield rollout_record("a")
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        journal.record_rollouts(Phase.TRAIN, 0, breaking())
    assert list(journal.rollouts(Phase.TRAIN, 0)) == []
    assert journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a"), rollout_record("b")]) == 2


def test_rollouts_are_in_natural_order(journal):
    """Row 2 comes before row 10, and an example's generations are adjacent."""
    keys = [("10", 1), ("2", 0), ("10", 0), ("2", 1)]
    journal.record_rollouts(Phase.TRAIN, 0, [rollout_record(key, generation) for key, generation in keys])
    journal.record_rollouts(Phase.VALIDATION, 0, [rollout_record("other phase")])
    journal.record_rollouts(Phase.TRAIN, 1, [rollout_record("other epoch")])
    seen = [(r.example_id, r.generation) for r in journal.rollouts(Phase.TRAIN, 0)]
    assert seen == [("2", 0), ("2", 1), ("10", 0), ("10", 1)]


def test_a_dashboard_reads_while_the_run_writes(journal):
    """In WAL mode a reader and the writer do not block each other, and the reader sees committed records."""
    with Journal.open(journal.run_dir, read_only=True) as reader:
        journal.record_epoch(epoch_record(0))
        assert len(reader.epochs()) == 1
        with pytest.raises(JournalError, match="readonly"):
            reader.record_epoch(epoch_record(1))


def test_the_state_has_the_end_of_a_run(journal):
    """A final state has its time and reason; a continued run has neither."""
    assert journal.info().state is RunState.RUNNING
    journal.set_state(RunState.FAILED, at=NOON, message="no trajectories")
    info = journal.info()
    assert (info.state, info.message, info.finished_at) == (RunState.FAILED, "no trajectories", NOON)
    journal.set_state(RunState.RUNNING, at=NOON)
    assert (journal.info().message, journal.info().finished_at) == (None, None)


def test_commits_are_synced_to_the_disk(journal):
    """With synchronous=FULL in WAL mode, a committed record survives a power cut."""
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_journal_is_never_begun_twice(journal):
    """A second run in the same folder would mix two histories."""
    with pytest.raises(JournalError, match="exists already"):
        Journal.create(journal.run_dir, "run-2", "", created_at=NOON)


def test_an_invalid_journal_is_refused_with_the_reason(tmp_path):
    """Missing, foreign and damaged files have different errors."""
    with pytest.raises(JournalError, match=r"no journal\.sqlite in"):
        Journal.open(tmp_path)
    (tmp_path / JOURNAL_NAME).write_bytes(b"this is not a database, but it is long enough to be looked at" * 20)
    with pytest.raises(JournalError, match="cannot be read"):
        Journal.open(tmp_path)


def test_a_journal_of_another_version_is_refused(journal):
    """An unknown schema would be read wrongly."""
    journal._connection.execute("PRAGMA user_version=99")
    with pytest.raises(JournalError, match="schema version 99; this program reads versions 2 to 4"):
        reopened(journal)


EARLIER_ROW = {
    "token_ids": [1, 2, 3, 4],
    "logprobs": [None, -0.5, None, -0.25],
    "returns": [{"num_tokens": 1, "value": 2.0}, {"num_tokens": 1, "value": 0.0}],
    "policy_versions": [{"num_tokens": 2, "policy_version": "m@1"}],
}
EARLIER_RECORD = {
    "example_id": "a",
    "generation": 0,
    "messages": [
        {"role": "assistant", "content": "shot"},
        *[{"role": r, "content": ""} for r in ("user", "assistant")],
    ],
    "conversations": [{"began": "first", "messages": 3, "calls": 1}],
}


def test_a_journal_with_rows_in_its_records_is_read(journal):
    """The earliest version: the last answers of the assistant are the sampled ones; nothing is written to it."""
    connection = journal._connection
    connection.execute("ALTER TABLE rollouts DROP COLUMN rows")
    text = json.dumps(EARLIER_RECORD | {"rows": [EARLIER_ROW]})
    connection.execute("INSERT INTO rollouts VALUES ('train', 0, 'a', 0, ?)", (text,))
    connection.execute("PRAGMA user_version=2")
    with reopened(journal) as read:
        [record] = read.rollouts(Phase.TRAIN, 0)
    assert record.rows == [row_of([1, 2, 3, 4], [None, -0.5, None, -0.25], values=[2.0, 0.0], versions=["m@1"] * 2)]
    assert record.conversations[0].answers == [AnswerRecord(message=2)], "one answer is not the two spans of the row"
    with pytest.raises(JournalError, match="schema version 2; this program writes version 4"):
        Journal.open(journal.run_dir)


@pytest.mark.parametrize(
    "damage",
    [
        {"conversations": [{}]},
        {"rows": [{}]},
        {"rows": [EARLIER_ROW | {"returns": [{"num_tokens": 10**15, "value": "high"}]}]},
        {"rows": 3},
        {"messages": 1},
        {"generation": -1},
    ],
)
def test_damage_of_an_earlier_journal_is_an_error(journal, damage):
    """The file is named, and what is wrong with it."""
    text = json.dumps(EARLIER_RECORD | damage)
    journal._connection.execute("INSERT INTO rollouts VALUES ('train', 0, 'a', 0, ?, NULL)", (text,))
    journal._connection.execute("PRAGMA user_version=3")
    with reopened(journal) as read, pytest.raises(JournalError, match=r"journal\.sqlite"):
        list(read.rollouts(Phase.TRAIN, 0))


def test_a_line_of_a_rollout_is_its_whole_record(journal):
    """The rows are stored as bytes beside the record; readers of the files see one object."""
    row = row_of([1, 2**40], [None, -1e-17], values=[0.5])
    record = rollout_record("a", rows=[row], seconds=2.5)
    journal.record_rollouts(Phase.TRAIN, 0, [record])
    (line,) = journal.rollout_lines(Phase.TRAIN, 0)
    assert json.loads(line) == json.loads(record.model_dump_json(exclude_defaults=True))


WRITER = textwrap.dedent("""
    import sys
    from itertools import count
    from pathlib import Path
    from fakes.run_records import NOON, epoch_record, rollout_record
    from nat.runs.folder import write_files, write_trajectories
    from nat.runs.journal import Journal
    from nat.runs.records import Phase

    journal = Journal.create(Path(sys.argv[1]), "run-1", "seed: 0", created_at=NOON)
    for epoch in count():
        messages = [{"role": "user", "content": "x" * 5000}]
        journal.record_rollouts(Phase.TRAIN, epoch, [rollout_record(str(i), messages=messages) for i in range(8)])
        journal.record_epoch(epoch_record(epoch))
        print(epoch, flush=True)
        write_files(journal)
        write_trajectories(journal, Phase.TRAIN, epoch)
""")


@pytest.mark.parametrize("acknowledged", [1, 7, 30])
def test_kill_9_loses_no_committed_record(tmp_path, acknowledged):
    """After a kill during writes, all committed records are there, and no partial one."""
    run_dir = tmp_path / "run-1"
    run_dir.mkdir()
    path = [entry for entry in sys.path if entry]
    environment = {"PYTHONPATH": ":".join(path)}
    command = [sys.executable, "-c", WRITER, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:  # noqa: S603 - our own
        seen = [child.stdout.readline() for _ in range(acknowledged)]
        child.kill()
    assert seen == [f"{epoch}\n" for epoch in range(acknowledged)]
    with Journal.open(run_dir, read_only=True) as journal:
        epochs = [record.epoch for record in journal.epochs()]
        rollouts = [len(list(journal.rollouts(Phase.TRAIN, epoch))) for epoch in range(len(epochs) + 2)]
        assert journal.info().state is RunState.RUNNING
    assert epochs == list(range(len(epochs)))
    assert len(epochs) >= acknowledged
    assert rollouts[: len(epochs)] == [8] * len(epochs)
    assert set(rollouts[len(epochs) :]) <= {0, 8}
    for file in run_dir.glob("**/[!.]*.jsonl"):  # not those that were being written, which nobody reads
        assert file.read_bytes().endswith(b"\n")


def test_the_journal_is_private_to_its_owner(tmp_path, monkeypatch):
    """The database and its side files are closed to others, whatever the umask."""
    mask = os.umask(0)
    try:
        run_dir = create_run_folder(tmp_path, "run")
        with Journal.create(run_dir, "run", "", created_at=NOON):
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in [run_dir, *run_dir.iterdir()]}
    finally:
        os.umask(mask)
    files = dict.fromkeys(["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"], "0o600")
    assert modes == {"run": "0o700", **files}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reading_a_finished_run_changes_no_file(journal):
    """SQLite would leave its log and index behind, were it not told that nobody writes."""
    journal.close()
    before = files_of(journal.run_dir)
    with reading(journal.run_dir) as read:
        assert read.info().run_id == "run-1"
        assert files_of(journal.run_dir) == before
    assert files_of(journal.run_dir) == before


def test_reading_a_running_run_sees_its_last_record(journal):
    """What is committed is visible at once, also while the run writes on."""
    with reading(journal.run_dir) as read:
        journal.record_epoch(epoch_record(0))
        assert read.num_epochs() == 1
        journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a")])
        assert (read.played(Phase.TRAIN), read.played(Phase.VALIDATION)) == ([0], [])


def test_a_damaged_page_is_an_error_with_a_remedy(journal):
    """Damage behind the beginning of the file is found when it is read, not when the file is opened."""
    journal.record_rollouts(
        Phase.TRAIN, 0, [rollout_record(str(n), messages=[{"role": "user"}] * 99) for n in range(99)]
    )
    journal.close()
    path = journal.run_dir / JOURNAL_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(JournalError, match=r"is damaged: .*\n.*restore the file"), reading(journal.run_dir) as read:
        read.info()


def test_a_record_of_another_release_is_an_error(journal):
    """A field that this release does not know is named, instead of a traceback."""
    journal._connection.execute("""UPDATE facts SET record = json_set(record, '$.mood', 'good')""")
    journal.close()
    with (
        pytest.raises(JournalError, match=r"cannot read: mood: .*\n.*release that wrote it"),
        reading(journal.run_dir) as r,
    ):
        r.info()


@pytest.mark.parametrize("rows", [b"", b"\x00\xff", bytes(100), "text", 5])
def test_damaged_rows_are_an_error_with_a_remedy(journal, rows):
    """In reports and in the files that are derived from the journal."""
    journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a")])
    journal._connection.execute("UPDATE rollouts SET rows = ?", (rows,))
    journal.close()
    for read in (Journal.rollouts, Journal.rollout_lines):
        with pytest.raises(JournalError, match=r"is damaged: .*\n.*restore"), reading(journal.run_dir) as opened:
            list(read(opened, Phase.TRAIN, 0))


def test_damage_that_sqlite_quotes_is_an_error_with_a_remedy(journal):
    """SQLite quotes a damaged name, which then need not be UTF-8."""
    journal.close()
    path = journal.run_dir / JOURNAL_NAME
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE rollouts", b"CREATE TABLX \xbe\xfellouts"))
    with pytest.raises(JournalError, match=r"cannot be read|is damaged"), reading(journal.run_dir) as read:
        read.num_epochs()


def test_a_count_beyond_all_numbers_is_damage(journal):
    """Python computes with it, SQLite and floats do not."""
    with pytest.raises(JournalError, match="is damaged"), reading(journal.run_dir) as read:
        list(read.rollouts(Phase.TRAIN, 10**400))


@pytest.mark.parametrize("column", ["epoch", "generation"])
def test_a_text_in_place_of_a_number_is_damage(journal, column):
    """SQLite keeps it in a column of numbers, but no run writes one."""
    journal.record_rollouts(Phase.TRAIN, 0, [rollout_record()])
    with sqlite3.connect(journal.run_dir / JOURNAL_NAME) as connection:
        connection.execute(f"UPDATE rollouts SET {column} = 'x'")  # noqa: S608 - our own names

    def everything():
        with reading(journal.run_dir) as read:
            return read.played(Phase.TRAIN), read.outcomes(Phase.TRAIN, 0)

    with pytest.raises(JournalError, match="is damaged"):
        everything()


ENDLESS = """
WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted) SELECT n AS epoch, record FROM counted, old
"""


@pytest.mark.parametrize("view", [ENDLESS, "SELECT 1 AS epoch, 'x' AS record"])
def test_a_view_in_place_of_a_table_is_refused(journal, view):
    """A journal of somebody else's may have one that never ends, or gives gigabytes."""
    journal.record_epoch(epoch_record())
    journal._connection.execute("ALTER TABLE epochs RENAME TO old")
    journal._connection.execute(f"CREATE VIEW epochs AS {view}")
    journal.close()
    with (
        pytest.raises(JournalError, match="is damaged: it has a view in place of a table"),
        reading(journal.run_dir) as r,
    ):
        r.epochs()


def test_a_computed_column_is_refused(journal):
    """It takes no space in the file, and could fill the memory."""
    large = "record TEXT AS (printf('%.*c', 900000000, 'x'))"
    journal._connection.execute("DROP TABLE epochs")
    journal._connection.execute(f"CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, {large})")
    journal.close()
    with pytest.raises(JournalError, match="its table epochs has a computed column"), reading(journal.run_dir):
        pass


def test_of_two_journals_the_damaged_one_is_named(journal, tmp_path):
    """`nat runs compare` reads two at a time."""
    (tmp_path / "whole").mkdir()
    Journal.create(tmp_path / "whole", "run-2", "", created_at=NOON).close()
    journal._connection.execute("INSERT INTO epochs VALUES (1, '{}')")
    journal._connection.execute("DROP TABLE jobs")
    journal.close()
    for read in (Journal.epochs, Journal.jobs):
        named = re.escape(f"{journal.run_dir / JOURNAL_NAME} ")
        with pytest.raises(JournalError, match=named), reading(journal.run_dir) as one, reading(tmp_path / "whole"):
            read(one)


def test_pages_that_form_a_loop_end(journal):
    """A page that is its own child many times over would give the same rows for years."""
    journal.record_epoch(epoch_record())
    (size,) = journal._connection.execute("PRAGMA page_size").fetchone()
    (root,) = journal._connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'epochs'").fetchone()
    (last,) = journal._connection.execute("PRAGMA page_count").fetchone()
    journal._connection.execute("PRAGMA journal_mode=DELETE")
    journal.close()
    path = journal.run_dir / JOURNAL_NAME
    pages = bytearray(path.read_bytes())
    leaf = pages[(root - 1) * size : root * size]
    pages[(root - 1) * size : root * size] = parent_page(size, last + 1)
    for number in range(last + 2, last + 10):
        pages += parent_page(size, number)
    struct.pack_into(">I", pages, 28, last + 9)  # the number of pages
    path.write_bytes(pages + leaf)
    with pytest.raises(JournalError, match="more than the whole file holds"), reading(journal.run_dir) as read:
        read.epochs()
    with pytest.raises(JournalError, match="more than the whole file holds"), reading(journal.run_dir) as read:
        read.num_epochs()


def parent_page(size: int, child: int, cells: int = 400) -> bytes:
    """An inner page of a table's tree, all of whose cells name one child."""
    starts = [size - 5 * (n + 1) for n in range(cells)]
    head = struct.pack(">BHHHBI", 5, 0, cells, starts[-1], 0, child) + struct.pack(f">{cells}H", *starts)
    return head.ljust(size - 5 * cells, b"\0") + struct.pack(">IB", child, 1) * cells


def test_a_journal_is_read_while_it_grows(journal):
    """What a run adds meanwhile is not more than its file holds."""
    with Journal.open(journal.run_dir, read_only=True) as read:
        epochs = read.each_epoch()
        for number in range(50):
            journal.record_epoch(epoch_record(number, metrics={f"train/{n}": 0.5 for n in range(100)}))
        assert len(list(epochs)) == 50
        assert read.num_epochs() == 50


def test_outcomes_are_read_without_texts(journal):
    """In the order of the rollouts, of all examples or of some; a reward that is no number is none."""
    records = [
        rollout_record("b", 1, reward=0.25),
        rollout_record("b", 0, reward=float("nan")),
        rollout_record("a10", 0, reward=None, left_out=LeftOutCause.FAILED),
        rollout_record("a2", 0, reward=1),
    ]
    journal.record_rollouts(Phase.TRAIN, 0, records)
    found = [(each.example_id, each.generation, each.reward) for each in journal.outcomes(Phase.TRAIN, 0)]
    assert found == [("b", 0, None), ("b", 1, 0.25), ("a2", 0, 1.0), ("a10", 0, None)]
    (failed,) = journal.outcomes(Phase.TRAIN, 0, ["a10", "unknown"])
    assert failed.left_out == LeftOutCause.FAILED
    assert journal.examples(Phase.TRAIN, 0) == [("b", 2), ("a2", 1), ("a10", 1)]
    assert [each.generation for each in journal.rollouts(Phase.TRAIN, 0, "b")] == [0, 1]
    assert journal.outcomes(Phase.VALIDATION, 0) == []
