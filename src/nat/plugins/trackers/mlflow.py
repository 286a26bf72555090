"""MLflow: a server, or a local SQLite file."""

import re
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Cell, TrackedRun, TrackerSession

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
def open_mlflow(run: TrackedRun, config: MlflowConfig) -> TrackerSession:
    """Begin the run, or go on with it, which is found by its name."""
    from mlflow import MlflowClient
    from mlflow.entities import Param

    client = MlflowClient(config.tracking_uri)
    found = client.get_experiment_by_name(config.experiment)
    experiment = client.create_experiment(config.experiment) if found is None else found.experiment_id
    known = client.search_runs([experiment], f"attributes.run_name = '{run.run_id}'", max_results=1)
    if known:
        client.update_run(known[0].info.run_id, status="RUNNING")
        return _Session(client, known[0].info.run_id)
    run_id = str(client.create_run(experiment, run_name=run.run_id).info.run_id)
    params = [Param(accepted_name(name), str(value)[:_PARAM_CHARS]) for name, value in run.settings().items()]
    for first in range(0, len(params), _AT_ONCE):
        client.log_batch(run_id, params=params[first : first + _AT_ONCE])
    client.log_dict(run_id, dict(run.config), "config.yaml")
    return _Session(client, run_id)


class _Session(TrackerSession):
    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._id = run_id

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [Metric(accepted_name(name), value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._id, metrics=values)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        path = f"{name}/epoch_{step:04d}.json"
        if not any(file.path == path for file in self._client.list_artifacts(self._id, name)):  # it would append
            data = {column: list(values) for column, values in zip(columns, zip(*rows, strict=True), strict=True)}
            self._client.log_table(self._id, data, path)

    def text(self, name: str, value: str | float) -> None:
        self._client.set_tag(self._id, name, value)

    def finish(self, state: RunState) -> None:
        self._client.set_terminated(self._id, _ENDS.get(state, "KILLED"))


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
