"""Weights & Biases, online or as files that `wandb sync` uploads later."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nat.data_models.tracker import TrackerConfig
from nat.errors import TrackerFailed
from nat.registry.decorators import register_tracker
from nat.runs.records import RunState
from nat.runs.tracker import Cell, TrackedRun, TrackerSession, is_of_steps

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
    return _Session(opened)


class _Session(TrackerSession):
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
