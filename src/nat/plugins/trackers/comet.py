"""Comet, online or as archives that `comet upload` uploads later."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Artifact, Point, RolloutTable, TrackedRun, Tracker

_NOTHING_ELSE = {
    "log_code": False,
    "log_graph": False,
    "log_env_details": False,
    "log_git_metadata": False,
    "log_git_patch": False,
    "auto_param_logging": False,
    "auto_metric_logging": False,
    "auto_output_logging": False,
    "parse_args": False,
    "display_summary_level": 0,
}
"""Comet would log what the whole process does, and its command line, which may have secrets."""
_EMPTY_ZIP_BYTES = 22
"""Comet makes an empty archive when an experiment begins."""


class CometConfig(TrackerConfig, name="comet"):
    """An experiment of Comet; the key is in COMET_API_KEY."""

    project: str = "nat"
    """Project of the experiment."""
    workspace: str | None = None
    """Workspace of the project; null: the key's own."""
    offline: bool = False
    """Write archives to `trackers/comet` in the run's folder, for `comet upload`."""

    packages: ClassVar[tuple[str, ...]] = ("comet_ml",)
    extra: ClassVar[str | None] = "comet"


@register_tracker(config_type=CometConfig)
class Comet(Tracker):
    """Settings are parameters, rollouts a CSV table of each epoch, models remote assets."""

    def __init__(self, config: CometConfig) -> None:
        self._config = config
        self._experiment: Any = None

    def started(self, run: TrackedRun) -> str:
        import comet_ml

        logging.getLogger("comet_ml").setLevel(logging.ERROR)  # it warns of what is switched off here
        config, key = self._config, run.tracker_id
        names = {"project_name": config.project, "workspace": config.workspace}
        if not config.offline:
            options = comet_ml.ExperimentConfig(name=run.run_id, **_NOTHING_ELSE)
            self._experiment = comet_ml.start(**names, experiment_key=key, experiment_config=options)
        else:
            folder = run.folder / "comet"
            folder.mkdir(parents=True, exist_ok=True)
            options = {"offline_directory": str(folder), **_NOTHING_ELSE}
            if any(file.stat().st_size > _EMPTY_ZIP_BYTES for file in folder.glob(f"{key}*.zip")):
                self._experiment = comet_ml.ExistingOfflineExperiment(**names, previous_experiment=key, **options)
            else:
                self._experiment = comet_ml.OfflineExperiment(**names, experiment_key=key, **options)
            self._experiment.set_name(run.run_id)
        self._experiment.log_parameters(run.settings())
        return str(self._experiment.get_key())

    def step(self, point: Point) -> None:
        self._experiment.log_metrics(dict(point.metrics), step=point.number)

    def epoch(self, point: Point) -> None:
        self._experiment.log_metrics(dict(point.metrics), step=point.number, epoch=point.number)

    validation = epoch

    def rollouts(self, table: RolloutTable) -> None:
        rows = [list(row) for row in table.rows]
        self._experiment.log_table(f"{table.name}/epoch_{table.epoch:04d}.csv", rows, headers=list(table.columns))

    def verdict(self, facts: Mapping[str, str | float]) -> None:
        self._experiment.log_others(dict(facts))

    def artifact(self, artifact: Artifact) -> None:
        if artifact.path.is_dir():
            self._experiment.log_remote_asset(artifact.path.as_uri(), remote_file_name=artifact.name)
        else:
            self._experiment.log_asset(str(artifact.path), file_name=artifact.path.name)

    def flush(self) -> bool:
        if self._config.offline:
            return False  # the archive is written at the end
        return bool(self._experiment.flush())

    def ended(self, state: RunState) -> None:
        self._experiment.log_other("state", str(state))
        self._experiment.end()
