"""What a tracker is given of a run, and how: four methods that W&B, MLflow and others are behind.

All that it gets is a view of the journal (`nat.runs.sending`), so it holds no secrets, and can be sent again later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nat.data_models.tracker import TrackerConfig
from nat.runs.records import RunState
from nat.wire.extras import install_hint, missing_packages

FOLDER = "trackers"
"""Folder in the run's folder, for what trackers write themselves."""
Cell = str | float | int | None


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker is to show."""

    run_id: str
    run_dir: Path
    """Absolute."""
    config: Mapping[str, Any]
    """The resolved configuration, without secrets."""

    @property
    def folder(self) -> Path:
        """For files of the tracker's own."""
        folder = self.run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        return folder

    def settings(self) -> dict[str, Any]:
        """Each single setting by its dotted key."""
        return dict(_settings(self.config, ""))


class TrackerSession(Protocol):
    """Shows a run elsewhere, under the run's id; a tracker registers a function `open(run, config)` that gives one.

    It is called from one thread of its own, and may block and raise. A run that goes on, or is sent later, opens a
    session again and gives everything again: equal steps replace each other.
    """

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Numbers of an epoch or a validation, by the epoch; `step/…` are of an optimizer step, by its number."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        """Some rollouts of an epoch or a validation: `rollouts` or `held_out_rollouts`."""

    def text(self, name: str, value: str | float) -> None:
        """One fact of the run: `verdict/…`, or the path of the plot or of a model, `artifact/…`."""

    def finish(self, state: RunState) -> None:
        """Store everything; nothing follows. `running` means that the run was killed."""


def is_of_steps(metrics: Mapping[str, float]) -> bool:
    """Whether these numbers are of an optimizer step."""
    return all(name.startswith("step/") for name in metrics)


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
