"""A run in a notebook: opened by any of its names, read when asked, shown as text and never as HTML of a model."""

import subprocess
import sys

import pytest

from fakes.run_records import NOON, rollout_record
from fakes.runs_on_disk import make_run
from nat.errors import JournalError
from nat.runs import Run
from nat.runs.journal import Journal
from nat.runs.liveness import ShownState, marked_alive
from nat.runs.records import Phase
from nat.runs.rollouts import LeftOutCause


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three epochs."""
    return make_run(tmp_path_factory.mktemp("runs"), "20260314-120000-aaaa")


@pytest.fixture
def begun(tmp_path):
    """The journal of a run that has begun, and nothing more."""
    with Journal.create(tmp_path, "20260314-120000-bbbb", "", created_at=NOON) as journal:
        yield journal


def test_a_run_is_opened_by_each_of_its_names(folder, monkeypatch):
    """The path, as a text too, the id, its beginning and `latest` lead to the same run; another name to none."""
    monkeypatch.chdir(folder.parent)
    root = folder.parent
    opened = [Run.open(folder), Run.open(str(folder)), Run.open(folder.name, root), Run.open("20260314-12", root)]
    assert {run.folder.resolve() for run in [*opened, Run.open(root=root)]} == {folder}
    assert opened[0].id == folder.name
    with pytest.raises(JournalError, match="no run is called 'other'"):
        Run.open("other", root)


def test_epochs_are_rows_with_their_metrics(folder):
    """Each epoch is a row under the names of `training_metrics.jsonl`; its metrics are columns."""
    frame = Run.open(folder).epochs()
    assert "usage" not in frame.columns, "a record in a record is no number"
    assert frame["epoch"].tolist() == [1, 2, 3]
    assert frame["avg_reward"].tolist() == pytest.approx([0.3, 0.4, 0.5])
    assert frame["train/approx_kl"].tolist() == [0.01] * 3


def test_rollouts_are_rows(folder):
    """Each has its question, the expected answer and its own; without a reward, the cause stands beside it."""
    frame = Run.open(folder).rollouts()
    assert frame.groupby("epoch").size().tolist() == [5, 5, 5]
    first = frame[frame["epoch"] == 1].set_index(["example_id", "generation"])
    assert first.loc[("a", 1), "reward"] == 0.25
    assert first["reward"].isna().tolist() == [False, False, False, True, False]
    assert first.loc[("c", 0), "left_out"] == LeftOutCause.FAILED
    held_out = Run.open(folder).rollouts(held_out=True).set_index(["epoch", "example_id"])
    assert held_out.loc[(0, "held-9"), ["question", "expected", "output"]].tolist() == ["What is held-9?", "4", "4"]


def test_a_run_that_trains_shows_what_it_has_now(begun):
    """The same object shows each rollout as soon as it is recorded, and the state as the process's lock has it."""
    run = Run.open(begun.run_dir)
    with marked_alive(begun.run_dir):
        begun.record_rollouts(Phase.TRAIN, 0, [rollout_record("a")])
        assert (len(run.rollouts()), run.state) == (1, ShownState.RUNNING)
        begun.record_rollouts(Phase.TRAIN, 1, [rollout_record("a")])
        assert len(run.rollouts()) == 2
    assert run.state is ShownState.INTERRUPTED


def test_without_pandas_the_records_can_be_read(folder):
    """Opening and streaming import no pandas; a table then names the extra that has it."""
    code = f"""
import sys
from importlib import abc, util
from nat.runs import Run

find_spec = util.find_spec
util.find_spec = lambda name, *more: None if name == "pandas" else find_spec(name, *more)
import nat.wire.extras
nat.wire.extras.find_spec = util.find_spec
run = Run.open({str(folder)!r})
assert len(list(run.each_rollout())) == 15
assert "pandas" not in sys.modules
try:
    run.epochs()
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs the package pandas" in done.stdout
    assert "nat-finetuning-harness[notebook]" in done.stdout
