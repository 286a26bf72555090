"""Weights & Biases, online or as files that `wandb sync` uploads later."""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.errors import TrackerFailed
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Artifact, Point, RolloutTable, TrackedRun, Tracker

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
class Wandb(Tracker):
    """The run's id is its id there. Rollouts are a table of each epoch; models are references."""

    def __init__(self, config: WandbConfig) -> None:
        self._config = config
        self._run: Any = None

    def started(self, run: TrackedRun) -> str:
        import wandb

        config = self._config
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
        run.folder.mkdir(exist_ok=True)
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            id=run.tracker_id or run.run_id,
            name=run.run_id,
            config=dict(run.config),
            dir=run.folder,
            mode="offline" if config.offline else None,
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        self._run.define_metric("epoch")
        self._run.define_metric("optimizer_step")
        self._run.define_metric("step/*", step_metric="optimizer_step")
        self._run.define_metric("*", step_metric="epoch")
        return str(self._run.id)

    def step(self, point: Point) -> None:
        self._run.log({"optimizer_step": point.number, **point.metrics})

    def epoch(self, point: Point) -> None:
        self._run.log({"epoch": point.number, **point.metrics})

    validation = epoch

    def rollouts(self, table: RolloutTable) -> None:
        import wandb

        rows = wandb.Table(columns=list(table.columns), data=[list(row) for row in table.rows], allow_mixed_types=True)
        self._run.log({"epoch": table.epoch, table.name: rows})

    def verdict(self, facts: Mapping[str, str | float]) -> None:
        self._run.summary.update(dict(facts))

    def artifact(self, artifact: Artifact) -> None:
        import wandb

        own = wandb.Artifact(f"{self._run.id}-{artifact.name}", type=artifact.kind)
        if artifact.path.is_dir():
            own.add_reference(artifact.path.as_uri(), checksum=False)
        else:
            own.add_file(str(artifact.path))
        self._run.log_artifact(own)

    def flush(self) -> bool:
        return False  # its process writes every 15 seconds, and at the end

    def ended(self, state: RunState) -> None:
        if state is RunState.INTERRUPTED:
            self._run.mark_preempting()
        self._run.finish(exit_code=0 if state is RunState.COMPLETED else 1)
