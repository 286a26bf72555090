import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from fakes.run_records import NOON, epoch_record, job_record, rollout_record, validation_record
from fakes.training_rows import row_of, sent_job
from nat.data_models.rollout_failure import FirstFailure
from nat.errors import JournalError
from nat.runs.folder import create_run_folder
from nat.runs.journal import JOURNAL_NAME, Journal, reading
from nat.runs.records import EpochRecord, Phase, RunState, RunSummary
from nat.runs.rollouts import LeftOutCause
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
    journal.record(epoch)
    journal.record(validation)
    journal.record(job)
    journal.record(summary)
    with reopened(journal) as read:
        assert list(read.rollouts(Phase.TRAIN, 0)) == [rollout]
        assert read.epochs() == [epoch]
        assert (read.find(EpochRecord, epoch.epoch), read.find(EpochRecord, 9)) == (epoch, None)
        assert read.validations() == [validation]
        assert read.jobs() == [job]
        assert read.find(RunSummary) == summary
        assert read.info().config_text == "seed: 0\n"


def test_the_same_key_again_replaces(journal):
    """A step that is repeated after an interruption is counted once."""
    for reward in (0.0, 1.0):
        journal.record_rollouts(Phase.TRAIN, 0, [rollout_record(reward=reward)])
        journal.record(epoch_record(0, reward))
    for status in (JobStatus.PENDING, JobStatus.COMPLETED):
        journal.record(job_record(status=status))
    assert [r.reward for r in journal.rollouts(Phase.TRAIN, 0)] == [1.0]
    assert [e.avg_reward for e in journal.epochs()] == [1.0]
    assert [j.status for j in journal.jobs()] == [JobStatus.COMPLETED]


def test_what_is_kept_of_rollouts_goes_with_their_record(journal):
    """In one step; that of the validation before training only when it is asked for, since others compare with it."""
    for phase, epoch in ((Phase.TRAIN, 0), (Phase.TRAIN, 1), (Phase.VALIDATION, 0), (Phase.VALIDATION, 1)):
        journal.keep(phase, epoch, {(0, "", "x"): b"rollout"})
    journal.record(epoch_record(0))
    journal.record(validation_record(0))
    journal.record(validation_record(1))
    assert [len(journal.kept(Phase.TRAIN, epoch)) for epoch in (0, 1)] == [0, 1]
    assert [len(journal.kept(Phase.VALIDATION, epoch)) for epoch in (0, 1)] == [1, 0]
    journal.forget_kept(Phase.VALIDATION, 0)
    assert not journal.kept(Phase.VALIDATION, 0)


def test_the_first_failure_of_each_kind_is_kept(journal):
    """Later ones, of the same batch or epochs after it, do not replace the first, whose traceback is read first."""

    def failed(example_id: str, *, line: int):
        place = f'  File "agent.py", line {line}'
        return rollout_record(example_id, left_out=LeftOutCause.FAILED, traceback=f"{place}\nE: {example_id}")

    journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a"), failed("b", line=1), failed("c", line=1)])
    journal.record_rollouts(Phase.TRAIN, 3, [failed("d", line=1), failed("e", line=2)])
    assert [each.rollout for each in journal.each(FirstFailure)] == [
        "training, epoch 1, example b, generation 0",
        "training, epoch 4, example e, generation 0",
    ]
    assert [each.traceback[-1] for each in journal.each(FirstFailure)] == ["b", "e"]


def test_a_batch_of_rollouts_is_written_completely_or_not_at_all(journal):
    """An error halfway through the records writes none of them."""

    def breaking() -> Iterator:
        yield rollout_record("a")
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        journal.record_rollouts(Phase.TRAIN, 0, breaking())
    assert list(journal.rollouts(Phase.TRAIN, 0)) == []
    assert journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a"), rollout_record("b")]) == 2


def test_an_invalid_journal_is_refused_with_the_reason(tmp_path):
    """Missing, foreign and damaged files have different errors."""
    with pytest.raises(JournalError, match=r"no journal\.sqlite in"):
        Journal.open(tmp_path)
    (tmp_path / JOURNAL_NAME).write_bytes(b"this is not a database, but it is long enough to be looked at" * 20)
    with pytest.raises(JournalError, match="cannot be read"):
        Journal.open(tmp_path)


@pytest.mark.parametrize(
    ("version", "seen"), [(4, "0.6 or earlier"), (99, "a later one"), (0, "its run was killed as it began")]
)
def test_a_journal_of_another_release_is_refused(journal, version, seen):
    """The error names the release, and says to begin anew."""
    journal._connection.execute(f"PRAGMA user_version={version}")
    for read_only in (True, False):
        with pytest.raises(JournalError, match=rf"{seen}\n.*begin a new run"):
            Journal.open(journal.run_dir, read_only=read_only)


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
        journal.record(epoch_record(epoch))
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
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


def test_a_record_of_another_release_is_an_error(journal):
    """A field that this release does not know is named, instead of a traceback."""
    journal._connection.execute("""UPDATE records SET record = json_set(record, '$.mood', 'good')""")
    journal.close()
    with (
        pytest.raises(JournalError, match=r"cannot read: mood: .*\n.*release that wrote it"),
        reading(journal.run_dir) as r,
    ):
        r.info()


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


def test_batches_are_kept_as_they_were_sent_until_no_restart_needs_them(journal):
    """Those before the older of two checkpoints go when the next one is kept; another LLM's stay."""
    jobs = [sent_job(f"run-{number:06d}") for number in range(4)]
    journal.keep_batch("other", jobs[0], needed_from=None)
    for job in jobs:
        journal.keep_batch("student", job, needed_from="run-000001" if job is jobs[-1] else None)
    assert journal.batches("student") == ["run-000001", "run-000002", "run-000003"]
    kept = journal.batch("student", "run-000002")
    assert (kept, kept.model_fields_set) == (jobs[2], jobs[2].model_fields_set)
    journal.forget_batches("student", ["run-000001"])
    assert (journal.batches("student"), journal.batches("other")) == (["run-000002", "run-000003"], ["run-000000"])
    journal.prune()
    assert journal.batches("student") == journal.batches("other") == []


def test_commits_are_synced_to_the_disk(journal):
    """With synchronous=FULL in WAL mode, a committed record survives a power cut."""
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


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
