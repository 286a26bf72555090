"""A run is sent from its journal, each part once."""

import os
from datetime import timedelta
from math import inf, nan

import pytest

from fakes.run_records import NOON, epoch_record, job_record, validation_record
from fakes.runs_on_disk import make_run
from fakes.tracker import FakeTracker, registered
from nat.data_models.llm_usage import LLMUsage
from nat.errors import JournalError
from nat.registry.catalog import pushed_catalog
from nat.runs.journal import Journal, reading
from nat.runs.records import Phase, RunState, RunSummary, Verdict
from nat.runs.sending import (
    Sending,
    Sent,
    due,
    epoch_metrics,
    only_sender,
    read_sent,
    step_points,
    validation_metrics,
    verdict_facts,
)
from nat.wire.training import JobStatus


@pytest.fixture
def tracker():
    return FakeTracker()


@pytest.fixture
def config(tracker):
    with pushed_catalog():
        yield registered(tracker)


@pytest.fixture
def run_dir(tmp_path):
    """Three epochs, four validations, completed."""
    return make_run(tmp_path, "run-1")


def numbers(tracker, method):
    return [point.number for point in tracker.given(method)]


def test_a_whole_run_is_sent_from_its_journal(tracker, config, run_dir):
    """The tracker gets the configuration, then all validations, epochs and rollouts, and the end last."""
    sent = Sending("mine", config, run_dir).send(last=True)
    (run,) = tracker.given("started")
    assert (run.run_id, run.run_dir, run.tracker_id) == ("run-1", run_dir, None)
    assert run.config["llms"]["student"]["model"] == "models/small"
    assert numbers(tracker, "validation") == [0, 1, 2, 3]
    assert numbers(tracker, "epoch") == [0, 1, 2]
    assert [(t.name, t.epoch) for t in tracker.given("rollouts")] == [
        *(("held_out_rollouts", n) for n in range(4)),
        *(("rollouts", n) for n in range(3)),
    ]
    assert tracker.calls[-1] == ("ended", RunState.COMPLETED)
    assert sent == Sent(tracker_id="id-1", epochs=3, validations=4, ended=RunState.COMPLETED)


def test_the_journal_and_the_files_of_the_run_stay_as_they_are(config, run_dir):
    """Sending writes only `trackers/`."""
    before = {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()}
    Sending("mine", config, run_dir).send(last=True)
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()} == before
    assert [path.name for path in (run_dir / "trackers").iterdir()] == ["mine.json"]


def test_what_was_sent_is_not_sent_again(tracker, config, run_dir):
    """Another process goes on under the same id, after the last epoch that was stored."""
    Sending("mine", config, run_dir).send()
    with Journal.open(run_dir) as journal:
        journal.record_epoch(epoch_record(3))
    tracker.calls.clear()
    Sending("mine", config, run_dir).send(last=True)
    assert tracker.given("started")[0].tracker_id == "id-1"
    assert numbers(tracker, "epoch") == [3]
    assert numbers(tracker, "validation") == []


def test_a_run_that_goes_on_after_its_end_ends_again(tracker, config, run_dir):
    """A resumed run is sent further; without anything new, nothing is sent."""
    Sending("mine", config, run_dir).send(last=True)
    tracker.calls.clear()
    Sending("mine", config, run_dir).send(last=True)
    assert [method for method, _ in tracker.calls] == ["started"]
    with Journal.open(run_dir) as journal:
        journal.record_epoch(epoch_record(3))
    Sending("mine", config, run_dir).send(last=True)
    assert numbers(tracker, "epoch") == [3]
    assert tracker.given("ended") == [RunState.COMPLETED]


def test_a_run_that_goes_on_is_begun_once(tracker, config, run_dir):
    """Its tracker goes on from the end that it was told, also while there is nothing new."""
    Sending("mine", config, run_dir).send(last=True)
    tracker.calls.clear()
    with Journal.open(run_dir) as journal:
        journal.set_state(RunState.RUNNING, at=NOON)
    sending = Sending("mine", config, run_dir)
    sending.send()
    sending.send()
    assert len(tracker.given("started")) == 1


def test_only_what_was_stored_counts_as_sent(tracker, config, run_dir):
    """A process that is killed before the tracker has stored what it got sends that again."""

    def killed(method, _argument):
        if method == "flush":
            raise KeyboardInterrupt

    tracker.before = killed
    with pytest.raises(KeyboardInterrupt):
        Sending("mine", config, run_dir).send()
    assert read_sent(run_dir, "mine") == Sent(tracker_id="id-1")


def test_a_failure_is_repeated_from_where_it_was(tracker, config, run_dir):
    """In the same process, the epochs before the failure are not given twice."""
    failing = [True]

    def fail(method, argument):
        if method == "epoch" and argument.number == 1 and failing:
            failing.clear()
            raise OSError("no network")

    tracker.before = fail
    sending = Sending("mine", config, run_dir)
    with pytest.raises(OSError, match="no network"):
        sending.send()
    assert sending.send().epochs == 3
    assert numbers(tracker, "epoch") == [0, 1, 2]
    assert len(tracker.given("started")) == 1


def test_a_tracker_that_does_not_begin_is_begun_again(tracker, config, run_dir):
    """What has no server yet may have one later."""
    tracker.before = lambda _method, _argument: (_ for _ in ()).throw(OSError("no server"))
    sending = Sending("mine", config, run_dir)
    with pytest.raises(OSError, match="no server"):
        sending.send()
    tracker.before = lambda _method, _argument: None
    assert sending.send().epochs == 3


def test_the_journal_is_closed_while_the_tracker_works(tracker, config, run_dir):
    """A tracker that hangs keeps no transaction open, which would let the journal's log grow."""

    def checkpoint(method, _argument):
        if method == "epoch":
            with Journal.open(run_dir) as journal:
                assert journal._file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0

    tracker.before = checkpoint
    assert Sending("mine", config, run_dir).send().epochs == 3


def test_a_damaged_record_of_what_was_sent_is_named(config, run_dir):
    """The message says what deleting it means."""
    (run_dir / "trackers").mkdir()
    (run_dir / "trackers" / "mine.json").write_text("{")
    with pytest.raises(JournalError, match="delete it to send the run again"):
        Sending("mine", config, run_dir).send()


@pytest.mark.parametrize("rows", [0, 2, 32])
def test_tables_are_bounded(run_dir, rows):
    """A table has at most so many rollouts; with 0 there is none."""
    tracker = FakeTracker()
    with reading(run_dir) as journal:
        for give, _ in due(journal, Sent(), rows, last=False):
            give(tracker)
    sizes = {len(table.rows) for table in tracker.given("rollouts")}
    assert sizes == {0: set(), 2: {2}, 32: {5, 10}}[rows]


def test_a_table_has_conversations_and_causes(run_dir):
    """A row says what was asked and answered, its reward, and why it was left out; long texts and numbers are cut."""
    with Journal.open(run_dir) as journal:
        (first, *_) = journal.rollouts(Phase.TRAIN, 0)
        journal.record_rollouts(Phase.TRAIN, 2, [first.model_copy(update={"output": "x" * 5000, "seconds": 0.56603})])
    tracker = FakeTracker()
    with reading(run_dir) as journal:
        for give, _ in due(journal, Sent(epochs=2, validations=9), 99, last=False):
            give(tracker)
    (table,) = tracker.given("rollouts")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert rows[0]["conversation"] == "user: What is 2 + 2?\nassistant: 4"
    assert (rows[0]["example_id"], rows[0]["generation"], rows[0]["reward"]) == ("a", 0, 1.0)
    assert len(rows[0]["output"]) < 4100
    assert rows[0]["seconds"] == 0.566
    assert {row["left_out"] for row in rows} > {None, "its group has no difference in reward"}
    assert "KeyError: 'city'" in {row["error"] for row in rows}


def test_an_epoch_that_was_not_finished_has_its_rollouts_sent_at_the_end(tmp_path):
    """They show why the run failed."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.FAILED)
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, 3, journal.rollouts(Phase.TRAIN, 0))
    tracker = FakeTracker()
    with reading(run_dir) as journal:
        for give, _ in due(journal, Sent(epochs=3, validations=4), 9, last=True):
            give(tracker)
    assert [(table.name, table.epoch) for table in tracker.given("rollouts")] == [("rollouts", 3)]
    assert tracker.given("ended") == [RunState.FAILED]


def test_plot_and_models_are_artifacts_where_they_exist(tmp_path):
    """A checkpoint that the journal names and a crash took is left out."""
    run_dir = make_run(tmp_path, "run-1")
    (run_dir / "model").mkdir()
    (run_dir / "plot.png").touch()
    summary = RunSummary(run_id="run-1", epochs=3, seconds=1, tokens_trained=0, model="model", plot="plot.png")
    with Journal.open(run_dir) as journal:
        journal.record_summary(summary)
    tracker = FakeTracker()
    with reading(run_dir) as journal:
        for give, _ in due(journal, Sent(epochs=3, validations=4), 9, last=True):
            give(tracker)
    assert {a.name: a.path for a in tracker.given("artifact")} == {
        "plot": run_dir / "plot.png",
        "model": run_dir / "model",
    }


@pytest.mark.parametrize("place", ["../secret", "{}", "plot.png"])
def test_a_file_outside_the_run_is_no_artifact(tmp_path, place):
    """A tracker uploads files, and the journal of a run from elsewhere may name any file, or a link to one."""
    run_dir, secret = make_run(tmp_path, "run-1"), tmp_path / "secret"
    secret.touch()
    (run_dir / "plot.png").symlink_to(secret)
    summary = RunSummary(run_id="run-1", epochs=3, seconds=1, tokens_trained=0, plot=place.format(secret))
    with Journal.open(run_dir) as journal:
        journal.record_summary(summary)
    tracker = FakeTracker()
    with reading(run_dir) as journal:
        for give, _ in due(journal, Sent(epochs=3, validations=4), 0, last=True):
            give(tracker)
    assert tracker.given("artifact") == []


def test_an_id_that_is_a_path_is_refused(tracker, config, tmp_path):
    """Trackers make files of that name."""
    run_dir = tmp_path / "copied"
    run_dir.mkdir()
    Journal.create(run_dir, "../../elsewhere", "", created_at=NOON).close()
    with pytest.raises(JournalError, match="cannot name a run's folder"):
        Sending("mine", config, run_dir).send(last=True)
    assert tracker.calls == []


def test_what_is_no_file_cannot_say_what_was_sent(run_dir):
    """A FIFO would block, and a device has no end."""
    (run_dir / "trackers").mkdir()
    os.mkfifo(run_dir / "trackers" / "mine.json")
    with pytest.raises(JournalError, match="it is no file"):
        read_sent(run_dir, "mine")


def test_trackers_that_lead_elsewhere_are_not_written_to(run_dir, tmp_path):
    """A run from elsewhere may have a link to any folder."""
    (run_dir / "trackers").symlink_to(tmp_path)
    with pytest.raises(JournalError, match="is no folder of the run"), only_sender(run_dir):
        pass


def test_an_epoch_has_the_names_of_its_record_and_metrics():
    """Metrics keep their names, and fields but the mean reward are one group; what is no finite number is left out."""
    metrics = epoch_metrics(epoch_record(2, metrics={"train/loss": 0.5, "train/bad": nan, "reward/mean": inf}))
    assert metrics["avg_reward"] == 0.5
    assert metrics["train/loss"] == 0.5
    assert metrics["epoch/num_trajectories"] == 192
    assert [name for name in metrics if "/" not in name] == ["avg_reward"]
    absent = {"epoch/epoch", "epoch/timestamp", "epoch/filtered_avg_reward", "train/bad", "reward/mean"}
    assert not absent & metrics.keys()


def test_an_epoch_has_the_calls_of_each_llm():
    """By who called it."""
    used = {"judge": {"gpt": LLMUsage(calls=2, prompt_tokens=7, completion_tokens=1)}}
    metrics = epoch_metrics(epoch_record(2, usage=used))
    assert {name: value for name, value in metrics.items() if name.startswith("cost/")} == {
        "cost/judge/gpt/calls": 2,
        "cost/judge/gpt/prompt_tokens": 7,
        "cost/judge/gpt/completion_tokens": 1,
    }


def test_a_validation_has_its_interval():
    """The ends of the mean's 95 % interval stand beside the mean."""
    metrics = validation_metrics(validation_record(scores={"a": 0.0, "b": 1.0, "c": None}))
    assert (metrics["val/avg_reward"], metrics["val/num_failed"]) == (0.5, 1)
    assert metrics["val/interval_low"] == 0.0
    assert metrics["val/interval_high"] == 1.0


def test_steps_are_numbered_through_the_run():
    """The number is that of the weights after the step; a step without a gradient has none."""
    steps = [{"loss": 0.5, "grad_norm": 1.0}, {"loss": 0.0, "grad_norm": 0.0}, {"loss": 0.25, "grad_norm": 2.0}]
    done = NOON + timedelta(seconds=5)
    job = job_record(status=JobStatus.COMPLETED, steps=steps, metrics={"policy_step": 7.0}, finished_at=done)
    points = step_points(job)
    assert [(p.number, p.metrics["step/loss"], p.at) for p in points] == [(6, 0.5, done), (7, 0.25, done)]


@pytest.mark.parametrize("told", [nan, inf, -1.0])
def test_steps_count_from_one_where_the_backend_gives_no_count(told):
    """No number of a backend ends the sending."""
    assert [
        point.number for point in step_points(job_record(steps=[{"loss": 0.5}], metrics={"policy_step": told}))
    ] == [1]


def test_steps_of_several_models_have_numbers_of_their_own(tracker, config, run_dir):
    """Their backends count each for itself; no number comes twice, and a step that changed no weight has none."""
    with Journal.open(run_dir) as journal:
        for epoch in range(2):
            steps = [{"plan/loss": 0.5, "plan/grad_norm": 1.0}, {"plan/grad_norm": 0.0}, {"work/grad_norm": 2.0}]
            facts = {"steps": steps, "metrics": {"policy_step": 1.0 + epoch}, "epoch": epoch}
            journal.record_job(job_record(f"job-{epoch}", JobStatus.COMPLETED, **facts))
    sent = Sending("mine", config, run_dir).send()
    assert [point.number for method, point in tracker.calls if method == "step"] == [1, 2, 3, 4]
    assert sent.steps == 4


def test_steps_of_an_epoch_come_before_it(tracker, config, run_dir):
    """A job that failed has none."""
    with Journal.open(run_dir) as journal:
        steps = {"steps": [{"loss": 0.5}], "metrics": {"policy_step": 2.0}, "epoch": 1}
        journal.record_job(job_record("job-1", JobStatus.COMPLETED, **steps))
        journal.record_job(job_record("job-2", JobStatus.FAILED, epoch=1))
    Sending("mine", config, run_dir).send()
    methods = [(m, a.number) for m, a in tracker.calls if m in {"step", "epoch"}]
    assert methods == [("epoch", 0), ("step", 2), ("epoch", 1), ("epoch", 2)]


def test_the_verdict_is_numbers_and_words():
    """The summary's single values under `verdict/`; the interval has its two ends."""
    summary = RunSummary(
        run_id="run-1",
        before=0.25,
        after=0.75,
        difference=0.5,
        interval=(0.25, 0.75),
        verdict=Verdict.IMPROVED,
        epochs=3,
        seconds=9.0,
        tokens_trained=100,
    )
    facts = verdict_facts(summary)
    assert (facts["verdict/verdict"], facts["verdict/before"]) == ("improved", 0.25)
    assert (facts["verdict/interval_low"], facts["verdict/interval_high"]) == (0.25, 0.75)
    assert "verdict/model" not in facts
