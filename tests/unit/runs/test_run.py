"""A run in a notebook: opened by any of its names, read when asked, shown as text and never as HTML of a model."""

import shutil
import subprocess
import sys

import pytest

from fakes.run_records import NOON, rollout_record
from fakes.runs_on_disk import CONFIG, EVIL, conversation, make_run, thread
from nat.errors import JournalError
from nat.runs import Run
from nat.runs.frames import CALL_COLUMNS, EPOCH_COLUMNS, ROLLOUT_COLUMNS, VALIDATION_COLUMNS
from nat.runs.journal import Journal
from nat.runs.liveness import ShownState, marked_alive
from nat.runs.records import Phase, RunState, RunSummary, Verdict
from nat.runs.rollouts import LeftOutCause
from nat.secrets import redact

ATTACK = "</td><script>alert(1)</script>\u202e & <img src=x onerror=alert(2)>"


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


def test_a_damaged_run_is_not_opened(tmp_path):
    """Opening reads the journal, so that a cell fails where the mistake is."""
    (tmp_path / "journal.sqlite").write_bytes(b"nothing")
    with pytest.raises(JournalError, match="cannot be read: file is not a database"):
        Run.open(tmp_path)


def test_epochs_are_rows_with_their_metrics(folder):
    """Each epoch is a row under the names of `training_metrics.jsonl`; its metrics are columns."""
    frame = Run.open(folder).epochs()
    assert "usage" not in frame.columns, "a record in a record is no number"
    assert frame.columns[: len(EPOCH_COLUMNS)].tolist() == EPOCH_COLUMNS
    assert frame["epoch"].tolist() == [0, 1, 2]
    assert frame["avg_reward"].tolist() == pytest.approx([0.3, 0.4, 0.5])
    assert frame["left_out"].tolist() == [8, 8, 8]
    assert frame["train/approx_kl"].tolist() == [0.01] * 3


def test_validations_are_rows_with_intervals(folder):
    """Each validation has its mean, and the ends of the mean's interval around it."""
    frame = Run.open(folder).validations()
    assert frame.columns.tolist() == VALIDATION_COLUMNS
    assert frame["avg_reward"].tolist() == [0.2, 0.6, 0.7, 0.8]
    assert (frame["interval_low"] < frame["avg_reward"]).all()
    assert (frame["avg_reward"] < frame["interval_high"]).all()


def test_rollouts_are_rows(folder):
    """Each rollout is a row; one without a reward has none there, and the cause stands beside it."""
    frame = Run.open(folder).rollouts()
    assert frame.columns.tolist() == ROLLOUT_COLUMNS
    assert frame.groupby("epoch").size().tolist() == [5, 5, 5]
    first = frame[frame["epoch"] == 0].set_index(["example_id", "generation"])
    assert first.loc[("a", 1), "reward"] == 0.25
    assert first.loc[("d", 0), "sampled_tokens"] == 4
    assert first["reward"].isna().tolist() == [False, False, False, True, False]
    assert first.loc[("c", 0), "left_out"] == LeftOutCause.FAILED


def test_held_out_rollouts_are_those_of_validations(folder):
    """`held_out` reads the rollouts of the validations in place of the training."""
    assert Run.open(folder).rollouts(held_out=True)["epoch"].unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("last", "epochs"), [(None, [0, 1, 2]), (2, [1, 2]), (9, [0, 1, 2]), (0, [])])
def test_the_last_epochs_can_be_chosen(folder, last, epochs):
    """`last` is the number of epochs that are read, the newest ones."""
    run = Run.open(folder)
    assert run.rollouts(last=last)["epoch"].unique().tolist() == epochs
    assert run.calls(last=last)["epoch"].unique().tolist() == epochs


def test_scores_beside_the_reward_are_columns(begun):
    """The score by another evaluator is a column of its own, empty for a rollout that has none."""
    records = [rollout_record("a", scores_beside={"style": 0.5}), rollout_record("b")]
    begun.record_rollouts(Phase.TRAIN, 0, records)
    frame = Run.open(begun.run_dir).rollouts()
    assert frame["score/style"].fillna(-1).tolist() == [0.5, -1]


def test_calls_are_the_sampled_answers(folder):
    """Each sampled answer is a row with its place, its text and its tokens."""
    frame = Run.open(folder).calls(last=1)
    assert frame.columns.tolist() == CALL_COLUMNS
    own = frame[frame["example_id"] == "d"]
    assert own["message"].tolist() == [2, 4]
    assert own["num_tool_calls"].tolist() == [1, 0]
    assert own["tokens"].tolist() == [1, 3]
    assert own["mean_logprob"].tolist() == [-1.0, -1.0]
    assert own["content"].iloc[1] == redact(f"It is mild.{EVIL}")


def test_a_call_without_tokens_or_message_is_a_row(begun):
    """An answer whose tokens were not recorded, or whose message a damaged record lacks, has empty cells."""
    records = [
        conversation("a", 1.0, rows=[]),
        rollout_record("b", messages=[], conversations=[thread(2, 1)]),
    ]
    begun.record_rollouts(Phase.TRAIN, 0, records)
    frame = Run.open(begun.run_dir).calls()
    assert frame["tokens"].isna().all()
    assert frame["content"].fillna("").tolist() == ["4", ""]


def test_a_run_that_has_nothing_yet_has_empty_tables(begun):
    """A notebook that was opened too early sees the columns and no row."""
    run = Run.open(begun.run_dir)
    assert (run.summary, run.config) == (None, {})
    for frame, columns in (
        (run.epochs(), EPOCH_COLUMNS),
        (run.validations(), VALIDATION_COLUMNS),
        (run.rollouts(), ROLLOUT_COLUMNS),
        (run.calls(), CALL_COLUMNS),
    ):
        assert (len(frame), frame.columns.tolist()) == (0, columns)
    assert "Reward" not in run._repr_html_()


def test_a_run_that_trains_shows_what_it_has_now(begun):
    """The same object shows each rollout as soon as it is recorded, and the state as the process's lock has it."""
    run = Run.open(begun.run_dir)
    with marked_alive(begun.run_dir):
        begun.record_rollouts(Phase.TRAIN, 0, [rollout_record("a")])
        assert (len(run.rollouts()), run.state) == (1, ShownState.RUNNING)
        begun.record_rollouts(Phase.TRAIN, 1, [rollout_record("a")])
        assert len(run.rollouts()) == 2
    assert run.state is ShownState.INTERRUPTED


def test_a_copied_run_is_read_without_a_trace(folder, tmp_path):
    """A copy elsewhere is read like the run itself, and reading leaves no file beside its journal."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    before = sorted(copy.iterdir())
    run = Run.open(copy)
    assert run.epochs().equals(Run.open(folder).epochs())
    assert (run.id, run.config) == (folder.name, CONFIG)
    assert sorted(copy.iterdir()) == before


def test_records_are_read_in_a_stream(folder):
    """`each_rollout` reads a record when it is asked for the next one, and lets go of the journal when it is closed."""
    rollouts = Run.open(folder).each_rollout()
    epoch, record = next(rollouts)
    assert (epoch, record.example_id, record.messages[0]["content"]) == (0, "a", "What is 2 + 2?")
    rollouts.close()
    assert list(rollouts) == []


def test_a_notebook_shows_rewards_and_verdict(begun):
    """The table has the state, the held-out scores and the verdict with its interval."""
    make_run(begun.run_dir, "20260314-130000-cccc")
    summary = RunSummary(
        run_id="r", before=0.2, after=0.8, interval=(0.3, 0.9), verdict=Verdict.IMPROVED, num_examples=10,
        epochs=3, seconds=1.0, tokens_trained=1,
    )  # fmt: skip
    run = Run.open(begun.run_dir / "20260314-130000-cccc")
    with Journal.open(run.folder) as journal:
        journal.record_summary(summary)
    shown = run._repr_html_()
    assert "<td><bdi>0.300 → 0.500</bdi></td>" in shown
    assert "<td><bdi>0.200 → 0.800</bdi></td>" in shown
    assert "improved: 0.200 → 0.800 on the same 10 examples, 95 % interval of the change +0.300 to +0.900" in shown
    assert repr(run) == f"Run({str(run.folder)!r})"


def test_texts_of_a_run_are_text_in_the_table(begun):
    """Markup in a text that came from a model, an agent or an error is shown as it is written."""
    begun.set_state(RunState.FAILED, at=NOON, message=ATTACK)
    shown = Run.open(begun.run_dir)._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "&lt;/td&gt;&lt;script&gt;" in shown
    assert shown.count("<td>") == shown.count("</td>") == shown.count("<bdi>") == 3


def test_texts_of_rollouts_are_text_in_their_table(begun):
    """The tables of pandas escape the output of an agent, too."""
    begun.record_rollouts(Phase.TRAIN, 0, [rollout_record("a", output=ATTACK)])
    assert "<script" not in Run.open(begun.run_dir).rollouts()._repr_html_()


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
assert "Run" in run._repr_html_()
assert "pandas" not in sys.modules
try:
    run.epochs()
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs the package pandas" in done.stdout
    assert "nat-finetuning-harness[notebook]" in done.stdout
