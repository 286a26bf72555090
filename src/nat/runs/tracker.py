"""What a tracker is given of a run, and how: the Protocol that W&B, MLflow and others are behind.

All that it gets is a view of the journal (`nat.runs.sending`), so it holds no secrets, and can be sent again later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from nat.data_models.tracker import TrackerConfig
from nat.runs.records import RunState
from nat.wire.extras import install_hint, missing_packages

FOLDER = "trackers"
"""Folder in the run's folder, for what trackers write themselves and what each of them has."""


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker is to show."""

    run_id: str
    run_dir: Path
    """Absolute."""
    config: Mapping[str, Any]
    """The resolved configuration, without secrets."""
    created_at: datetime
    tracker_id: str | None = None
    """What `started` gave the first time; None then."""

    @property
    def folder(self) -> Path:
        """For files of the tracker's own; it may not exist yet."""
        return self.run_dir / FOLDER

    def settings(self) -> dict[str, Any]:
        """Each single setting by its dotted key."""
        return dict(_settings(self.config, ""))


@dataclass(frozen=True)
class Point:
    """Numbers of an optimizer step, an epoch or a validation, by the names of the project's metrics."""

    number: int
    """Optimizer steps of the run, this one included; of an epoch or a validation the `epoch` of its record, from 0."""
    metrics: Mapping[str, float]
    """Finite."""
    at: datetime
    """When they were recorded."""


@dataclass(frozen=True)
class RolloutTable:
    """Some rollouts of an epoch or a validation; those of an example stand together."""

    name: str
    """`rollouts` or `held_out_rollouts`."""
    epoch: int
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]


@dataclass(frozen=True)
class Artifact:
    """A file of the run, or the folder of a model, whose gigabytes belong into a tracker by reference."""

    name: str
    """`plot`, `checkpoint` (of the best weights), `model` or `best_model`."""
    path: Path
    """Absolute."""

    @property
    def kind(self) -> str:
        """`plot` or `model`."""
        return "plot" if self.name == "plot" else "model"


class Tracker(Protocol):
    """Shows a run elsewhere; subclass it, and override what the tracker can show.

    It is called from one thread of its own, and may block and raise: what failed is given again. A run that goes on, or
    is sent later, calls `started` again with the `tracker_id` that it gave, and then gives what is not sent yet.
    """

    def started(self, run: TrackedRun) -> str:
        """Begin, or go on under `run.tracker_id`; gives the id of the run in the tracker."""
        return run.run_id

    def step(self, point: Point) -> None:
        """An optimizer step; only backends that report them have any."""

    def epoch(self, point: Point) -> None:
        """A finished epoch."""

    def validation(self, point: Point) -> None:
        """Scores of the held-out examples, with the ends of the mean's 95 % interval."""

    def rollouts(self, table: RolloutTable) -> None:
        """Some rollouts of an epoch or a validation."""

    def verdict(self, facts: Mapping[str, str | float]) -> None:
        """The summary of the run."""

    def artifact(self, artifact: Artifact) -> None:
        """The plot, or a model; each once."""

    def flush(self) -> bool:
        """Store what was given, so that it need not be given again; False if that is possible at the end only."""
        return True

    def ended(self, state: RunState) -> None:
        """Store everything; nothing follows. `running` means that the run was killed."""


def tracker_findings(trackers: Mapping[str, TrackerConfig]) -> list[str]:
    """Trackers whose packages are not installed."""
    findings = []
    for name, config in trackers.items():
        if missing := missing_packages(config.packages):
            hint = f"pip install {' '.join(missing)}" if config.extra is None else install_hint(config.extra)
            findings.append(f"finetuning.trackers.{name}: {' and '.join(missing)} is not installed: {hint}")
    return findings


def _settings(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _settings(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, str(node) if isinstance(node, list | Mapping) else node
