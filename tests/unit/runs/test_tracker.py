"""What a tracker is given, and what it needs."""

from pathlib import Path

import pytest

from nat.data_models.tracker import TrackerConfig
from nat.runs.tracker import TrackedRun, tracker_findings


def test_settings_have_dotted_keys():
    """A tracker that takes flat settings gets one for each leaf; lists are text."""
    config = {"llms": {"a": {"model": "m", "stop": ["x"], "extra": {}}}, "seed": 0}
    run = TrackedRun("run-1", Path("/runs/run-1"), config)
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
