"""Trackio: a local dashboard, or one in a Space of the Hugging Face Hub."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Artifact, Point, RolloutTable, TrackedRun, Tracker

logger = logging.getLogger(__name__)


class TrackioConfig(TrackerConfig, name="trackio"):
    """A run of Trackio, in the folder TRACKIO_DIR; `trackio show` opens the dashboard."""

    project: str = "nat"
    """Project of the run."""
    space_id: str | None = None
    """A Space of the Hub, `user/name`, that shows the run; it takes HF_TOKEN."""

    packages: ClassVar[tuple[str, ...]] = ("trackio", "pandas")
    extra: ClassVar[str | None] = "trackio"


@register_tracker(config_type=TrackioConfig)
class Trackio(Tracker):
    """The run's id is its name there; the step is the epoch, and of `step/` metrics the optimizer step."""

    def __init__(self, config: TrackioConfig) -> None:
        self._config = config
        self._shown: TrackedRun | None = None
        self._opened: Any = None

    def started(self, run: TrackedRun) -> str:
        self._shown = run
        return str(self._run.name)

    @property
    def _run(self) -> Any:
        """The run, which is finished after each sending: nothing else stores it at once."""
        if self._opened is None:
            import trackio

            for module in (trackio, trackio.run, trackio.utils):
                vars(module)["print"] = _logged  # it has no setting for silence, and prints at each opening
            config, run = self._config, self._shown
            assert run is not None, "it has started"
            self._opened = trackio.init(
                project=config.project,
                name=run.tracker_id or run.run_id,
                space_id=config.space_id,
                config=dict(run.config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return self._opened

    def epoch(self, point: Point) -> None:
        self._run.log(dict(point.metrics), step=point.number)

    step = validation = epoch

    def rollouts(self, table: RolloutTable) -> None:
        self._table(table.name, table.columns, table.rows, table.epoch)

    def verdict(self, facts: Mapping[str, str | float]) -> None:
        """A table: of numbers that come once the dashboard draws a bar chart each, and of words nothing."""
        rows = [
            [name.partition("/")[2], str(round(value, 4) if isinstance(value, float) else value)]
            for name, value in facts.items()
        ]
        self._table("verdict", ["name", "value"], rows, int(facts.get("verdict/epochs", 0)))

    def artifact(self, artifact: Artifact) -> None:
        import trackio

        own = trackio.Artifact(f"{self._run.name}-{artifact.name}", type=artifact.kind)
        if artifact.path.is_dir():
            own.add_reference(artifact.path.as_uri())
        else:
            own.add_file(str(artifact.path))
        self._run.log_artifact(own)

    def flush(self) -> bool:
        if self._opened is not None:
            self._opened.finish()
            self._opened = None
        return True

    def ended(self, state: RunState) -> None:
        self._run.log({"state": str(state)}, step=0)
        self.flush()

    def _table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int) -> None:
        import trackio

        self._run.log({name: trackio.Table(columns=list(columns), data=[list(row) for row in rows])}, step=step)


def _logged(*texts: object, **_options: object) -> None:
    logger.debug("%s", " ".join(map(str, texts)))
