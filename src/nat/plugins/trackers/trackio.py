"""Trackio: a local dashboard, or one in a Space of the Hugging Face Hub."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Cell, TrackedRun, TrackerSession


class TrackioConfig(TrackerConfig, name="trackio"):
    """A run of Trackio, in the folder TRACKIO_DIR; `trackio show` opens the dashboard."""

    project: str = "nat"
    """Project of the run."""
    space_id: str | None = None
    """A Space of the Hub, `user/name`, that shows the run; it takes HF_TOKEN."""

    packages: ClassVar[tuple[str, ...]] = ("trackio", "pandas")
    extra: ClassVar[str | None] = "trackio"


@register_tracker(config_type=TrackioConfig)
def open_trackio(run: TrackedRun, config: TrackioConfig) -> TrackerSession:
    """Begin the run, or go on with it; its id is its name there."""
    import trackio

    with redirect_stdout(sys.stderr):  # it prints, and the output is the run's
        opened = trackio.init(
            project=config.project,
            name=run.run_id,
            space_id=config.space_id,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    return _Session(opened)


class _Session(TrackerSession):
    """The step is the epoch, and of `step/` metrics the optimizer step; facts become a table."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._facts: list[list[Cell]] = []

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        import trackio

        self._run.log({name: trackio.Table(columns=list(columns), data=[list(row) for row in rows])}, step=step)

    def text(self, name: str, value: str | float) -> None:
        self._facts.append([name, str(value)])

    def finish(self, state: RunState) -> None:
        self.table("facts", ["name", "value"], [["state", str(state)], *self._facts], 0)
        with redirect_stdout(sys.stderr):
            self._run.finish()
