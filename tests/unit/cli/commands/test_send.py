"""`nat runs send` gives trackers what they do not have of a run."""

import pytest

from fakes.runs_on_disk import CONFIG, make_run
from fakes.tracker import FakeTracker, registered
from nat.cli.commands.send import tracker_config
from nat.cli.main import exit_code
from nat.errors import ConfigError, RegistryError
from nat.files import UNFINISHED
from nat.plugins.trackers.wandb import WandbConfig
from nat.registry.catalog import pushed_catalog
from nat.runs.liveness import marked_alive
from nat.runs.records import RunState
from nat.runs.sending import only_sender
from nat.runs.tracker import FOLDER


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
    assert {len(table.rows) for table in tracker.given("rollouts")} == {1}
    assert tracker.given("ended") == [RunState.COMPLETED]
    assert capsys.readouterr().out == "fake_tracker has 3 epochs of run-1, under the id id-1.\n"


def test_a_tracker_of_the_run_has_its_settings(tracker, tmp_path):
    """A name of the recorded configuration comes before a type; `-o` replaces a key."""
    recorded = with_trackers({"team": {"_type": "wandb", "project": "games", "offline": True}})
    config = tracker_config(recorded, "team", {"offline": False})
    assert config == WandbConfig(project="games", offline=False)


def test_a_run_that_was_killed_is_sent(tracker, tmp_path):
    """Its state says so."""
    assert send(make_run(tmp_path, "run-1", state=RunState.RUNNING), "fake_tracker") == 0
    assert tracker.given("ended") == [RunState.RUNNING]


def test_a_run_that_goes_on_is_not_sent(tracker, tmp_path, capsys):
    """Its own process sends it; two would send everything twice."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    with marked_alive(run_dir):
        assert send(run_dir, "fake_tracker") == 1
    assert "is going on, and sends itself" in capsys.readouterr().err
    assert tracker.calls == []


def test_a_run_is_sent_by_one_command_at_a_time(tracker, tmp_path, capsys):
    """Both would send everything."""
    run_dir = make_run(tmp_path, "run-1")
    with only_sender(run_dir):
        assert send(run_dir, "fake_tracker") == 1
    assert "another command is sending the run run-1" in capsys.readouterr().err
    assert tracker.calls == []
    assert send(run_dir, "fake_tracker") == 0


def test_the_draft_of_a_killed_run_is_deleted(tracker, tmp_path):
    """Nothing goes on with a run that was killed after its end, so this command cleans up."""
    run_dir = make_run(tmp_path, "run-1")
    (run_dir / FOLDER).mkdir(exist_ok=True)
    (run_dir / FOLDER / f"{UNFINISHED}12-fake_tracker.json").write_text('{"trac')
    assert send(run_dir, "fake_tracker") == 0
    assert [path.name for path in (run_dir / FOLDER).iterdir()] == ["fake_tracker.json"]


def test_a_failure_names_the_tracker(tracker, tmp_path, capsys):
    """The same command goes on where it failed."""

    def fail(_method, _argument):
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
