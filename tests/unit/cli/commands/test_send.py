"""`nat runs send` gives trackers what they do not have of a run."""

import pytest

from fakes.runs_on_disk import CONFIG, make_run
from fakes.tracker import FakeTracker, registered
from nat.cli.commands.send import tracker_config
from nat.cli.main import exit_code
from nat.errors import ConfigError, RegistryError
from nat.plugins.trackers import WandbConfig
from nat.registry.catalog import pushed_catalog
from nat.runs.liveness import marked_alive
from nat.runs.records import RunState


@pytest.fixture
def tracker():
    tracker = FakeTracker()
    with pushed_catalog():
        registered(tracker)
        yield tracker


def with_trackers(trackers):
    return CONFIG | {"finetuning": CONFIG["finetuning"] | {"trackers": trackers}}


def send(run_dir, *arguments):
    return exit_code(["runs", "send", str(run_dir), "--to", *arguments])


def test_a_run_without_trackers_is_sent_to_a_type(tracker, tmp_path, capsys):
    """The name may be a type; its keys are defaults, or given by `-o`."""
    run_dir = make_run(tmp_path, "run-1")
    assert send(run_dir, "fake_tracker", "-o", "rollouts", "1") == 0
    assert {len(rows) for _, _, rows, _ in tracker.given("table")} == {1}
    assert tracker.given("finish") == [[RunState.COMPLETED]]
    assert capsys.readouterr().out == "fake_tracker has 3 epochs of run-1.\n"


def test_a_tracker_of_the_run_has_its_settings(tracker, tmp_path):
    """A name of the recorded configuration comes before a type; `-o` replaces a key."""
    recorded = with_trackers({"team": {"_type": "wandb", "project": "games", "offline": True}})
    config = tracker_config(recorded, "team", {"offline": False})
    assert config == WandbConfig(project="games", offline=False)


def test_a_run_that_was_killed_is_sent(tracker, tmp_path):
    """Its state says so."""
    assert send(make_run(tmp_path, "run-1", state=RunState.RUNNING), "fake_tracker") == 0
    assert tracker.given("finish") == [[RunState.RUNNING]]


def test_a_run_that_goes_on_is_not_sent(tracker, tmp_path, capsys):
    """Its own process sends it; two would send everything twice."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    with marked_alive(run_dir):
        assert send(run_dir, "fake_tracker") == 1
    assert "is going on, and sends itself" in capsys.readouterr().err
    assert tracker.calls == []


def test_a_failure_names_the_tracker(tracker, tmp_path, capsys):
    """The same command tries it again."""

    def fail(*_):
        raise OSError("no network")

    run_dir = make_run(tmp_path, "run-1")
    tracker.before = fail
    assert send(run_dir, "fake_tracker") == 1
    assert "the tracker 'fake_tracker' failed: OSError: no network" in capsys.readouterr().err


def test_an_unknown_name_lists_the_types():
    """It is neither in the configuration nor registered."""
    with pytest.raises(RegistryError, match=r"'wandbb' is not registered as tracker\. Did you mean 'wandb'"):
        tracker_config({}, "wandbb", {})


def test_a_wrong_setting_is_named():
    """By its key, as in the YAML."""
    with pytest.raises(ConfigError, match="projekt"):
        tracker_config({}, "wandb", {"projekt": "games"})


def test_a_setting_that_the_journal_hides_must_be_given():
    """Stars are no value."""
    recorded = with_trackers({"mlflow": {"_type": "mlflow", "tracking_uri": "https://**********@host"}})
    with pytest.raises(ConfigError, match="tracking_uri: the journal has no secrets"):
        tracker_config(recorded, "mlflow", {})
    assert tracker_config(recorded, "mlflow", {"tracking_uri": "sqlite:///x.db"}).type == "mlflow"
