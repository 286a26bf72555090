"""A run is shown by its trackers, and goes on without them."""

import asyncio

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from fakes.tracker import FakeTracker, registered
from nat.cli.main import exit_code
from nat.data_models.tracker import TrackerConfig
from nat.errors import ConfigError
from nat.finetuning.progress import RunProgress
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState


class Heard(RunProgress):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


class Absent(TrackerConfig, name="absent"):
    packages = ("no_such_package",)
    extra = "wandb"


@pytest.fixture
def tracker():
    return FakeTracker()


@pytest.fixture
async def project(tmp_path, tracker):
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["trackers"] = {"mine": {"_type": "fake_tracker"}}
        with project.registered():
            registered(tracker)
            yield project


async def test_a_tracker_has_the_whole_run(project, tracker):
    """Configuration, held-out scores, epochs, rollouts, verdict and plot, and the end last; no secret."""
    project.config["llms"]["student"]["api_key"] = "sk-very-secret-1234567890"
    result = await project.run(validation_dataset=str(project.held_out))
    [[run]] = tracker.given("open")
    assert (run.run_id, run.config["llms"]["student"]["api_key"]) == (result.run_id, "**********")
    assert tracker.steps("avg_reward") == [0, 1]
    assert tracker.steps("val/avg_reward") == [0, 2]
    assert {name for name, *_ in tracker.given("table")} == {"rollouts", "held_out_rollouts"}
    assert tracker.facts["verdict/verdict"] == str(result.summary.verdict)
    assert [name for name in tracker.facts if name.startswith("artifact/")] == ["artifact/plot"]
    assert tracker.calls[-1] == ("finish", RunState.COMPLETED)
    assert "sk-very-secret-1234567890" not in repr(tracker.calls)


async def test_a_run_does_not_notice_that_its_tracker_fails(project, tracker, capsys):
    """It completes, names the tracker at its end, and `nat runs send` sends all of it later."""

    def fail(*_):
        raise OSError("no network")

    tracker.before = fail
    heard = Heard()
    result = await project.run(heard)
    assert result.summary.state is RunState.COMPLETED
    (line,) = [text for text in heard.warnings if "tracker" in text]
    assert f"nat runs send {result.run_dir} --to mine" in line
    tracker.before = lambda *_: None
    assert await asyncio.to_thread(exit_code, ["runs", "send", str(result.run_dir), "--to", "mine"]) == 0
    assert tracker.steps("avg_reward") == [0, 1]
    assert f"mine has 2 epochs of {result.run_id}" in capsys.readouterr().out


async def test_a_run_that_fails_tells_its_trackers(project, tracker):
    """They have its epochs, and how it ended."""
    project.adapter.outcomes = [{}, {"status": "failed", "message": "out of memory"}]
    with pytest.raises(Exception, match="out of memory"):
        await project.run()
    assert tracker.steps("avg_reward") == [0]
    assert [(name, step) for name, _, _, step in tracker.given("table")] == [("rollouts", 0), ("rollouts", 1)]
    assert tracker.given("finish") == [[RunState.FAILED]]
    assert "out of memory" in tracker.facts["verdict/ended_early"]


async def test_a_missing_package_is_refused_before_the_run(project):
    """The plan names the tracker and the extra; nothing is played, no folder is made."""
    register_tracker(config_type=Absent)(lambda _run, _config: FakeTracker())
    project.finetuning["trackers"]["other"] = {"_type": "absent"}
    with pytest.raises(ConfigError, match=r"finetuning.trackers.other: no_such_package is not installed.*\[wandb\]"):
        await project.run()
    assert not project.output_dir.exists()
