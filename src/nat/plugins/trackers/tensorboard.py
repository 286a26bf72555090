"""TensorBoard: event files in the run's folder, written without torch and TensorFlow."""

import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Artifact, Point, RolloutTable, TrackedRun, Tracker


class TensorBoardConfig(TrackerConfig, name="tensorboard"):
    """Event files that `tensorboard --logdir` shows."""

    log_dir: Path | None = None
    """Parent of the folder with the run's event files; null: they are in `trackers/tensorboard` of the run's folder."""

    packages: ClassVar[tuple[str, ...]] = ("tensorboardX",)
    extra: ClassVar[str | None] = "tensorboard"


@register_tracker(config_type=TensorBoardConfig)
class TensorBoard(Tracker):
    """Scalars by epoch or optimizer step; all else as text."""

    def __init__(self, config: TensorBoardConfig) -> None:
        self._log_dir = config.log_dir
        self._folder = ""
        self._files = count(1)
        self._opened: Any = None

    def started(self, run: TrackedRun) -> str:
        own = run.folder / "tensorboard"  # whose path has the run's id, and TensorBoard names runs by their path
        self._folder = str(own if self._log_dir is None else self._log_dir / run.run_id)
        if run.tracker_id is None:
            self._text("config", f"```json\n{json.dumps(run.config, indent=2, default=str)}\n```")
        return run.run_id

    @property
    def _writer(self) -> Any:
        """The writer of the current file, whose name differs from others of the same second."""
        if self._opened is None:
            from tensorboardX import SummaryWriter

            self._opened = SummaryWriter(self._folder, filename_suffix=f".{os.getpid()}.{next(self._files)}")
        return self._opened

    def epoch(self, point: Point) -> None:
        for name, value in point.metrics.items():
            self._writer.add_scalar(name, value, point.number, walltime=point.at.timestamp())

    step = validation = epoch

    def rollouts(self, table: RolloutTable) -> None:
        self._text(table.name, _markdown(table), table.epoch)

    def verdict(self, facts: Mapping[str, str | float]) -> None:
        self._text("verdict", "\n".join(f"- {name.partition('/')[2]}: {value}" for name, value in facts.items()))

    def artifact(self, artifact: Artifact) -> None:
        self._text(f"artifact/{artifact.name}", str(artifact.path))

    def flush(self) -> bool:
        """Close the file: the writer's own `flush` leaves out what waits in its queue."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        return True

    def ended(self, state: RunState) -> None:
        self._text("state", str(state))
        self.flush()

    def _text(self, name: str, text: str, number: int = 0) -> None:
        self._writer.add_text(name, text, number)


def _markdown(table: RolloutTable) -> str:
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join("|".join(["", *map(_in_cell, row), ""]) for row in rows)


def _in_cell(value: str | float | None) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", "<br>")
