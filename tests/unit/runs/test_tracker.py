"""The Protocol of trackers, and what it needs."""

from pathlib import Path

import pytest

from fakes.run_records import NOON
from nat.data_models.tracker import TrackerConfig
from nat.runs.records import RunState
from nat.runs.tracker import Artifact, Point, RolloutTable, TrackedRun, Tracker, tracker_findings


class Silent(Tracker):
    """Overrides nothing."""


def test_a_tracker_may_leave_out_everything():
    """Each method has a default, so a plug-in writes only what it can show; the run's id is then the tracker's."""
    tracker = Silent()
    run = TrackedRun("run-1", Path("/runs/run-1"), {}, NOON)
    assert tracker.started(run) == "run-1"
    for take in (tracker.step, tracker.epoch, tracker.validation):
        take(Point(0, {}, NOON))
    tracker.rollouts(RolloutTable("rollouts", 0, [], []))
    tracker.artifact(Artifact("plot", Path("/plot.png")))
    tracker.verdict({})
    tracker.flush()
    tracker.ended(RunState.COMPLETED)


def test_settings_have_dotted_keys():
    """A tracker that takes flat settings gets one for each leaf; lists are text."""
    config = {"llms": {"a": {"model": "m", "stop": ["x"], "extra": {}}}, "seed": 0}
    run = TrackedRun("run-1", Path("/runs/run-1"), config, NOON)
    assert run.settings() == {"llms.a.model": "m", "llms.a.stop": "['x']", "llms.a.extra": "{}", "seed": 0}


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
