"""MLflow: a server, or a local SQLite file."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Artifact, Point, RolloutTable, TrackedRun, Tracker

_PARAM_CHARS = 6000
"""MLflow refuses a longer value."""
_NAME_CHARS = 250
"""Likewise a longer name."""
_AT_ONCE = 100
"""Parameters of a request."""
_ENDS = {RunState.COMPLETED: "FINISHED", RunState.FAILED: "FAILED"}


class MlflowConfig(TrackerConfig, name="mlflow"):
    """A run of MLflow; the login of a server is in MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN."""

    tracking_uri: str | None = None
    """The server, or a file such as `sqlite:///mlflow.db`; null: MLFLOW_TRACKING_URI, and else MLflow's own default."""
    experiment: str = "nat"
    """The experiment of the run, which is made if it is missing."""

    packages: ClassVar[tuple[str, ...]] = ("mlflow",)
    extra: ClassVar[str | None] = "mlflow"


@register_tracker(config_type=MlflowConfig)
class Mlflow(Tracker):
    """Settings are parameters, rollouts a JSON table of each epoch, models tags with their paths: MLflow would copy."""

    def __init__(self, config: MlflowConfig) -> None:
        self._config = config
        self._client: Any = None
        self._id = ""
        self._last_ms: int | None = None

    def started(self, run: TrackedRun) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        client = self._client = MlflowClient(self._config.tracking_uri)
        if run.tracker_id is not None:
            self._id = run.tracker_id
            client.update_run(self._id, status="RUNNING")
            return self._id
        found = client.get_experiment_by_name(self._config.experiment)
        experiment = client.create_experiment(self._config.experiment) if found is None else found.experiment_id
        begun = int(run.created_at.timestamp() * 1000)
        self._id = str(client.create_run(experiment, start_time=begun, run_name=run.run_id).info.run_id)
        params = [Param(accepted_name(name), str(value)[:_PARAM_CHARS]) for name, value in run.settings().items()]
        for first in range(0, len(params), _AT_ONCE):
            client.log_batch(self._id, params=params[first : first + _AT_ONCE])
        client.log_dict(self._id, dict(run.config), "config.yaml")
        return self._id

    def epoch(self, point: Point) -> None:
        from mlflow.entities import Metric

        at = self._last_ms = int(point.at.timestamp() * 1000)
        metrics = [Metric(accepted_name(name), value, at, point.number) for name, value in point.metrics.items()]
        self._client.log_batch(self._id, metrics=metrics)

    step = validation = epoch

    def rollouts(self, table: RolloutTable) -> None:
        columns = {
            name: list(column) for name, column in zip(table.columns, zip(*table.rows, strict=True), strict=True)
        }
        self._client.log_table(self._id, columns, f"{table.name}/epoch_{table.epoch:04d}.json")

    def verdict(self, facts: Mapping[str, str | float]) -> None:
        for name, value in facts.items():
            self._client.set_tag(self._id, name, value)

    def artifact(self, artifact: Artifact) -> None:
        if artifact.path.is_dir():
            self._client.set_tag(self._id, f"artifact/{artifact.name}", str(artifact.path))
        else:
            self._client.log_artifact(self._id, str(artifact.path))

    def ended(self, state: RunState) -> None:
        """At the time of the last number, which of a run that is sent later is long ago."""
        self._client.set_terminated(self._id, _ENDS.get(state, "KILLED"), self._last_ms)


def accepted_name(name: str) -> str:
    """The name of a metric or a setting, with a digest if MLflow refuses its characters, its parts or its length.

    An evaluator may have any name, and one that is refused would keep the whole run from being sent.
    """
    parts = re.sub(r"[^\w./ :-]", "_", name).split("/")
    accepted = "/".join(part if part.strip(".") else "_" for part in parts)
    if accepted == name and len(name) <= _NAME_CHARS:
        return name
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{accepted[: _NAME_CHARS - len(digest) - 1]}_{digest}"
