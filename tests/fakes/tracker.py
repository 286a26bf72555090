"""A tracker that keeps what it gets, and fails or hangs when a test says so."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.tracker import TrackerSession


@dataclass
class FakeTracker(TrackerSession):
    """Appends the name and the arguments of each call."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    before: Callable[..., None] = lambda *_call: None
    """Called first; it may raise or block."""

    def take(self, *call: Any) -> None:
        self.before(*call)
        self.calls.append(call)

    def given(self, method: str) -> list[tuple[Any, ...]]:
        """The arguments of a method, in order."""
        return [arguments for name, *arguments in self.calls if name == method]

    def steps(self, metric: str) -> list[int]:
        """The steps at which it got a metric."""
        return [step for metrics, step in self.given("log") if metric in metrics]

    @property
    def facts(self) -> dict[str, Any]:
        """The texts that it got."""
        return dict(self.given("text"))

    def log(self, metrics, step) -> None:
        self.take("log", metrics, step)

    def table(self, name, columns, rows, step) -> None:
        self.take("table", name, columns, rows, step)

    def text(self, name, value) -> None:
        self.take("text", name, value)

    def finish(self, state) -> None:
        self.take("finish", state)


class FakeTrackerConfig(TrackerConfig, name="fake_tracker"):
    """Gives the tracker of the test."""


def registered(tracker: FakeTracker) -> FakeTrackerConfig:
    """Register the tracker in the current catalog; gives its configuration."""

    def opened(run, _config):
        tracker.take("open", run)
        return tracker

    register_tracker(config_type=FakeTrackerConfig)(opened)
    return FakeTrackerConfig()
