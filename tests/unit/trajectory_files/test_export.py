"""Files of rollouts, whole or not at all."""

import json
import resource
import tracemalloc

import pytest

from fakes.runs_on_disk import conversation, make_run
from nat.errors import JournalError, NoTrajectories, StorageError
from nat.preferences.pairs import PairRule
from nat.runs.journal import Journal, reading
from nat.runs.records import Phase
from nat.runs.rollouts import LeftOutCause
from nat.secrets import known_secrets
from nat.trajectory_files.export import export_trajectories
from nat.trajectory_files.formats import RowOptions


@pytest.fixture
def run_dir(tmp_path):
    """Three epochs of hand-made rollouts."""
    return make_run(tmp_path / "runs", "run-1")


def exported(run_dir, path, chosen=(), options=None, **more):
    with reading(run_dir) as journal:
        return export_trajectories(journal, chosen, path, options or RowOptions(), **more)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_all_training_epochs_are_the_default(run_dir, tmp_path):
    """Held-out rollouts are only written if they are named; the report counts what is left out."""
    found = exported(run_dir, tmp_path / "all.jsonl")
    rows = lines(tmp_path / "all.jsonl")
    assert [row["group"] for row in rows[:4]] == ["train/0/a", "train/0/a", "train/0/b", "train/0/d"]
    assert {row["epoch"] for row in rows} == {0, 1, 2}
    assert (found.rows, found.groups, found.rollouts) == (12, 9, 15)
    assert [str(each) for each in found.left_out] == [f"3 rollouts: {LeftOutCause.FAILED}"]
    assert str(found).endswith(f"left out: 3 rollouts: {LeftOutCause.FAILED}")


def test_epochs_and_validations_are_chosen(run_dir, tmp_path):
    """The rows of what is named, in that order."""
    exported(run_dir, tmp_path / "some.jsonl", [(Phase.TRAIN, 2), (Phase.VALIDATION, 0)])
    groups = [row["group"] for row in lines(tmp_path / "some.jsonl")]
    assert groups[:4] == ["train/2/a", "train/2/a", "train/2/b", "train/2/d"]
    assert groups[4] == "validation/0/held-0"
    assert len(groups) == 14


def test_an_epoch_that_was_not_played(run_dir, tmp_path):
    """The error lists what was; nothing is written."""
    with pytest.raises(JournalError, match="has no rollouts of epoch 9; it has epochs 1 to 3"):
        exported(run_dir, tmp_path / "none.jsonl", [(Phase.TRAIN, 8)])
    assert not (tmp_path / "none.jsonl").exists()


def test_no_rows_is_an_error(run_dir, tmp_path):
    """It counts the reasons, and no empty file is left."""
    options = RowOptions("preference", pairs=PairRule(margin=5))
    with pytest.raises(NoTrajectories, match=r"9 groups: no two of its rewards differ by the margin"):
        exported(run_dir, tmp_path / "none.jsonl", options=options)
    assert list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rows.csv", r"ends with \.csv; trajectories are written as \.jsonl"),
        ("rows", r"ends with no suffix"),
        ("there.jsonl", "exists already"),
        ("folder.jsonl", "is a folder"),
    ],
)
def test_targets_that_are_refused(run_dir, tmp_path, name, message):
    """Another suffix, an existing file without `force`, a folder."""
    (tmp_path / "there.jsonl").write_text("mine")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(StorageError, match=message):
        exported(run_dir, tmp_path / name)
    assert (tmp_path / "there.jsonl").read_text() == "mine"


def test_force_replaces_a_file(run_dir, tmp_path):
    """Only then."""
    (tmp_path / "there.jsonl").write_text("mine")
    assert exported(run_dir, tmp_path / "there.jsonl", force=True).rows == 12
    assert len(lines(tmp_path / "there.jsonl")) == 12


def test_secrets_are_not_written(tmp_path):
    """A secret that this process knows, though the run did not, is replaced."""
    run_dir = make_run(tmp_path / "runs", "run-1", solved=(1,))
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, 0, [conversation("a", 1.0, "My key is hunter2-hunter2.")])
    known_secrets.remember(["hunter2-hunter2"])
    try:
        exported(run_dir, tmp_path / "rows.jsonl")
    finally:
        known_secrets.forget()
    assert "hunter2" not in (tmp_path / "rows.jsonl").read_text()


def test_groups_are_read_one_at_a_time(tmp_path):
    """The memory that an export takes does not grow with the number of groups."""
    run_dir = make_run(tmp_path / "runs", "run-1", solved=(1,))
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, 0, (conversation(str(n), 1.0, "x" * 100_000) for n in range(100)))
    tracemalloc.start()
    try:
        found = exported(run_dir, tmp_path / "rows.jsonl")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.rows == 100
    assert (tmp_path / "rows.jsonl").stat().st_size > 10_000_000
    assert peak < 3_000_000


def test_a_full_disk_leaves_the_old_file(run_dir, tmp_path):
    """A write that fails raises the system's error; no half of a file gets the name."""
    (tmp_path / "rows.jsonl").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            exported(run_dir, tmp_path / "rows.jsonl", force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "rows.jsonl").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["rows.jsonl"]
