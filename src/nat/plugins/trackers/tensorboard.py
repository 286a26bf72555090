"""TensorBoard: event files in the run's folder, written without torch and TensorFlow."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Cell, TrackedRun, TrackerSession


class TensorBoardConfig(TrackerConfig, name="tensorboard"):
    """Event files that `tensorboard --logdir` shows."""

    log_dir: Path | None = None
    """Parent of the folder with the run's event files; null: they are in `trackers/tensorboard` of the run's folder."""

    packages: ClassVar[tuple[str, ...]] = ("tensorboardX",)
    extra: ClassVar[str | None] = "tensorboard"


@register_tracker(config_type=TensorBoardConfig)
def open_tensorboard(run: TrackedRun, config: TensorBoardConfig) -> TrackerSession:
    """Open a file of events; TensorBoard names runs by their path, which has the run's id."""
    from tensorboardX import SummaryWriter

    folder = run.folder / "tensorboard" if config.log_dir is None else config.log_dir / run.run_id
    session = _Session(SummaryWriter(str(folder), filename_suffix=f".{os.getpid()}"))
    session.text("config", f"```json\n{json.dumps(run.config, indent=2, default=str)}\n```")
    return session


class _Session(TrackerSession):
    """Scalars by epoch or optimizer step; all else as text."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        cells = [columns, ["---"] * len(columns), *rows]
        self._writer.add_text(name, "\n".join("|".join(["", *map(_in_cell, row), ""]) for row in cells), step)

    def text(self, name: str, value: str | float) -> None:
        self._writer.add_text(name, str(value), 0)

    def finish(self, state: RunState) -> None:
        self.text("state", str(state))
        self._writer.close()


def _in_cell(value: Cell) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", "<br>")
