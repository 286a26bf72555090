"""What a tracker needs, and how a run is sent to it from its journal."""

from math import inf, nan
from pathlib import Path

import pytest

from fakes.run_records import epoch_record, job_record
from fakes.runs_on_disk import make_run
from fakes.tracker import FakeTracker, registered
from nat.data_models.tracker import TrackerConfig
from nat.registry.catalog import pushed_catalog
from nat.runs.journal import Journal
from nat.runs.records import Phase, RunState, RunSummary, Verdict
from nat.runs.tracker import Sending, TrackedRun, epoch_metrics, step_points, tracker_findings, verdict_facts
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


def tables(tracker):
    return [(name, step) for name, _, _, step in tracker.given("table")]


def test_a_whole_run_is_sent_from_its_journal(tracker, config, run_dir):
    """The tracker gets the configuration, then each epoch after the validations before it, and the end last."""
    before = {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()}
    Sending("mine", config, run_dir).send(last=True)
    [[run]] = tracker.given("open")
    assert (run.run_id, run.run_dir) == ("run-1", run_dir)
    assert run.config["llms"]["student"]["model"] == "models/small"
    assert tracker.steps("val/avg_reward") == [0, 1, 2, 3]
    assert tracker.steps("avg_reward") == [0, 1, 2]
    expected = [(name, step) for step in range(3) for name in ("held_out_rollouts", "rollouts")]
    assert tables(tracker) == [*expected, ("held_out_rollouts", 3)]
    assert tracker.calls[-1] == ("finish", RunState.COMPLETED)
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()} == before


def test_a_run_that_goes_on_is_sent_in_one_session(tracker, config, run_dir):
    """Only what is new; another process gives everything again, under the same id."""
    sending = Sending("mine", config, run_dir)
    sending.send()
    with Journal.open(run_dir) as journal:
        journal.record(epoch_record(3))
    sending.send()
    assert (len(tracker.given("open")), tracker.steps("avg_reward")) == (1, [0, 1, 2, 3])
    tracker.calls.clear()
    Sending("mine", config, run_dir).send(last=True)
    assert tracker.steps("avg_reward") == [0, 1, 2, 3]


def test_a_failure_is_repeated_from_its_epoch(tracker, config, run_dir):
    """The tracker is opened again, and gets no epoch before the failure twice."""
    failing = [True]

    def fail(method, metrics=None, step=None, *_):
        if method == "log" and step == 1 and "avg_reward" in metrics and failing:
            failing.clear()
            raise OSError("no network")

    tracker.before = fail
    sending = Sending("mine", config, run_dir)
    with pytest.raises(OSError, match="no network"):
        sending.send()
    sending.send()
    assert (len(tracker.given("open")), tracker.steps("avg_reward")) == (2, [0, 1, 2])


def test_the_journal_is_closed_while_the_tracker_works(tracker, config, run_dir):
    """A tracker that hangs keeps no transaction open, which would let the journal's log grow."""

    def checkpoint(method, *_):
        if method == "log":
            with Journal.open(run_dir) as journal:
                assert journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0

    tracker.before = checkpoint
    Sending("mine", config, run_dir).send()
    assert len(tracker.given("log")) > 0


def test_an_epoch_that_was_not_finished_has_its_rollouts_sent_at_the_end(tracker, config, tmp_path):
    """They show why the run failed."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.FAILED)
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, 3, journal.rollouts(Phase.TRAIN, 0))
    Sending("mine", config, run_dir).send(last=True)
    assert tables(tracker)[-1] == ("rollouts", 3)
    assert tracker.given("finish") == [[RunState.FAILED]]


def test_an_epoch_has_the_names_of_its_record_and_metrics():
    """Metrics keep their names, and fields but the mean reward are one group; what is no finite number is left out."""
    metrics = epoch_metrics(epoch_record(2, metrics={"train/loss": 0.5, "train/bad": nan, "reward/mean": inf}))
    assert metrics["avg_reward"] == 0.5
    assert metrics["train/loss"] == 0.5
    assert metrics["epoch/num_trajectories"] == 192
    assert [name for name in metrics if "/" not in name] == ["avg_reward"]
    absent = {"epoch/epoch", "epoch/timestamp", "epoch/filtered_avg_reward", "train/bad", "reward/mean"}
    assert not absent & metrics.keys()


def test_steps_are_numbered_through_the_run():
    """The number is that of the weights after the step; a step without a gradient has none."""
    steps = [{"loss": 0.5, "grad_norm": 1.0}, {"loss": 0.0, "grad_norm": 0.0}, {"loss": 0.25, "grad_norm": 2.0}]
    job = job_record(status=JobStatus.COMPLETED, steps=steps, metrics={"policy_step": 7.0})
    assert [(number, found["step/loss"]) for number, found in step_points(job)] == [(6, 0.5), (7, 0.25)]


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


def test_settings_have_dotted_keys():
    """A tracker that takes flat settings gets one for each leaf."""
    config = {"llms": {"a": {"model": "m", "stop": ["x"], "extra": {}}}, "seed": 0}
    run = TrackedRun("run-1", Path("/runs/run-1"), config)
    assert run.settings() == {"llms.a.model": "m", "llms.a.stop.0": "x", "seed": 0}


class Ours(TrackerConfig, name="ours"):
    packages = ("json", "no_such_package")
    extra = "tensorboard"


class Theirs(TrackerConfig, name="theirs"):
    packages = ("no_such_package",)


@pytest.mark.parametrize(
    ("config", "remedy"),
    [(Ours(), "nat-finetuning-harness[tensorboard]"), (Theirs(), "pip install no_such_package")],
)
def test_a_missing_package_is_a_finding(config, remedy):
    """It names the tracker, the package and the extra that has it."""
    (finding,) = tracker_findings({"mine": config})
    assert finding.startswith("finetuning.trackers.mine: no_such_package is not installed: pip install")
    assert remedy in finding
