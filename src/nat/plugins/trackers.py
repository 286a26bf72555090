"""The built-in trackers; the package of each is imported when a run begins."""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from hashlib import sha256
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.errors import TrackerFailed
from nat.files import UserPath
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
    return _CometSession(experiment)


class _CometSession(TrackerSession):
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
        return _MlflowSession(client, known[0].info.run_id)
    run_id = str(client.create_run(experiment, run_name=run.run_id).info.run_id)
    params = [Param(accepted_name(name), str(value)[:_PARAM_CHARS]) for name, value in run.settings().items()]
    for first in range(0, len(params), _AT_ONCE):
        client.log_batch(run_id, params=params[first : first + _AT_ONCE])
    client.log_dict(run_id, dict(run.config), "config.yaml")
    return _MlflowSession(client, run_id)


class _MlflowSession(TrackerSession):
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


class TensorBoardConfig(TrackerConfig, name="tensorboard"):
    """Event files that `tensorboard --logdir` shows."""

    log_dir: UserPath | None = None
    """Parent of the folder with the run's event files; null: they are in `trackers/tensorboard` of the run's folder."""

    packages: ClassVar[tuple[str, ...]] = ("tensorboardX",)
    extra: ClassVar[str | None] = "tensorboard"


@register_tracker(config_type=TensorBoardConfig)
def open_tensorboard(run: TrackedRun, config: TensorBoardConfig) -> TrackerSession:
    """Open a file of events; TensorBoard names runs by their path, which has the run's id."""
    from tensorboardX import SummaryWriter

    folder = run.folder / "tensorboard" if config.log_dir is None else config.log_dir / run.run_id
    session = _TensorBoardSession(SummaryWriter(str(folder), filename_suffix=f".{os.getpid()}"))
    session.text("config", f"```json\n{json.dumps(run.config, indent=2, default=str)}\n```")
    return session


class _TensorBoardSession(TrackerSession):
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
    return _TrackioSession(opened)


class _TrackioSession(TrackerSession):
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


SECONDS_AT_END = 60.0
"""Time for the upload of what is left; by default W&B waits without a limit."""


class WandbConfig(TrackerConfig, name="wandb"):
    """A run of Weights & Biases; the key is in WANDB_API_KEY, or was given to `wandb login`."""

    project: str = "nat"
    """Project of the run."""
    entity: str | None = None
    """User or team; null: the key's own."""
    offline: bool = False
    """Write files to `trackers/wandb` in the run's folder, for `wandb sync`."""

    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    extra: ClassVar[str | None] = "wandb"


@register_tracker(config_type=WandbConfig)
def open_wandb(run: TrackedRun, config: WandbConfig) -> TrackerSession:
    """Begin the run, or go on with it; its id is its id there."""
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        x_disable_meta=True,  # it has the command line, which may have secrets
        finish_timeout=SECONDS_AT_END,  # also for its own hook at the end of the process
        finish_timeout_raises=True,
    )
    wandb.setup(settings)
    online = not config.offline and os.environ.get("WANDB_MODE", "online") == "online"
    if online and not wandb.login(prompt=False):  # `init` would ask for a key in the terminal
        raise TrackerFailed("W&B has no key", hint="set WANDB_API_KEY, call `wandb login`, or set offline: true")
    opened = wandb.init(
        project=config.project,
        entity=config.entity,
        id=run.run_id,
        name=run.run_id,
        config=dict(run.config),
        dir=run.folder,
        mode="offline" if config.offline else None,
        resume="allow",
        reinit="create_new",
        settings=settings,
    )
    opened.define_metric("epoch")
    opened.define_metric("optimizer_step")
    opened.define_metric("step/*", step_metric="optimizer_step")
    opened.define_metric("*", step_metric="epoch")
    return _WandbSession(opened)


class _WandbSession(TrackerSession):
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log({"optimizer_step" if is_of_steps(metrics) else "epoch": step, **metrics})

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        import wandb

        table = wandb.Table(columns=list(columns), data=[list(row) for row in rows], allow_mixed_types=True)
        self._run.log({"epoch": step, name: table})

    def text(self, name: str, value: str | float) -> None:
        self._run.summary[name] = value

    def finish(self, state: RunState) -> None:
        if state is RunState.INTERRUPTED:
            self._run.mark_preempting()
        self._run.finish(exit_code=0 if state is RunState.COMPLETED else 1)
