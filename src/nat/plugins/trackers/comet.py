"""Comet, online or as archives that `comet upload` uploads later."""

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Cell, TrackedRun, TrackerSession, is_of_steps

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
def open_comet(run: TrackedRun, config: CometConfig) -> TrackerSession:
    """Begin the experiment, or go on with it; its key follows from the run's id."""
    import comet_ml

    logging.getLogger("comet_ml").setLevel(logging.ERROR)  # it warns of what is switched off here
    names = {"project_name": config.project, "workspace": config.workspace}
    key = sha256(run.run_id.encode()).hexdigest()[:40]
    if not config.offline:
        options = comet_ml.ExperimentConfig(name=run.run_id, **_NOTHING_ELSE)
        experiment = comet_ml.start(**names, experiment_key=key, experiment_config=options)
    else:
        folder = run.folder / "comet"
        folder.mkdir(exist_ok=True)
        options = {"offline_directory": str(folder), **_NOTHING_ELSE}
        if any(file.stat().st_size > _EMPTY_ZIP_BYTES for file in folder.glob(f"{key}*.zip")):
            experiment = comet_ml.ExistingOfflineExperiment(**names, previous_experiment=key, **options)
        else:
            experiment = comet_ml.OfflineExperiment(**names, experiment_key=key, **options)
        experiment.set_name(run.run_id)
    experiment.log_parameters(run.settings())
    return _Session(experiment)


class _Session(TrackerSession):
    """Settings are parameters, rollouts a CSV table of each epoch."""

    def __init__(self, experiment: Any) -> None:
        self._experiment = experiment

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._experiment.log_metrics(dict(metrics), step=step, epoch=None if is_of_steps(metrics) else step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        self._experiment.log_table(f"{name}/epoch_{step:04d}.csv", [list(row) for row in rows], headers=list(columns))

    def text(self, name: str, value: str | float) -> None:
        self._experiment.log_other(name, value)

    def finish(self, state: RunState) -> None:
        self._experiment.log_other("state", str(state))
        self._experiment.end()
