"""A tracker that keeps what it gets, and fails or hangs when a test says so."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.tracker import Tracker


@dataclass
class FakeTracker(Tracker):
    """Appends a pair of method and argument for each call."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    before: Callable[[str, Any], None] = lambda _method, _argument: None
    """Called first; it may raise or block."""

    def _take(self, method: str, argument: Any) -> None:
        self.before(method, argument)
        self.calls.append((method, argument))

    def given(self, method: str) -> list[Any]:
        """The arguments of a method, in order."""
        return [argument for name, argument in self.calls if name == method]

    def started(self, run) -> str:
        self._take("started", run)
        return run.tracker_id or "id-1"

    def step(self, point) -> None:
        self._take("step", point)

    def epoch(self, point) -> None:
        self._take("epoch", point)

    def validation(self, point) -> None:
        self._take("validation", point)

    def rollouts(self, table) -> None:
        self._take("rollouts", table)

    def verdict(self, facts) -> None:
        self._take("verdict", facts)

    def artifact(self, artifact) -> None:
        self._take("artifact", artifact)

    def flush(self) -> bool:
        self._take("flush", None)
        return True

    def ended(self, state) -> None:
        self._take("ended", state)


class FakeTrackerConfig(TrackerConfig, name="fake_tracker"):
    """Gives the tracker of the test."""


def registered(tracker: FakeTracker) -> FakeTrackerConfig:
    """Register the tracker in the current catalog; gives its configuration."""
    register_tracker(config_type=FakeTrackerConfig)(lambda _config: tracker)
    return FakeTrackerConfig()
