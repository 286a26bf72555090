"""The real `art run` application with a minimal fake of its GPU part.

The application parses the bodies and streams the answers; the fake logs its arguments, one JSON line per
call, and takes as many gradient steps as its script says. The base package lacks the imports of the real part, so
its module is replaced before the application is imported.
"""

import json
import sys
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import game
from art import dev
from art.model import Model, TrainableModel
from art.trajectories import TrajectoryGroup
from art.types import TrainConfig

TOLD = game.settings()
FAILING_CALL = 3
"""This training call fails after its first gradient step, after the header was sent."""


class FakeLocalBackend:
    """Answers as the real one would, without a model."""

    def __init__(self) -> None:
        self._calls = 0
        self._log = Path(TOLD["log"])
        self._note("started", versions=game.versions())

    async def register(self, model: Model) -> None:
        self._note("register", model=model)

    async def close(self) -> None:
        self._note("close")

    async def _get_step(self, model: TrainableModel) -> int:
        self._note("get_step", model=model)
        return self._calls

    async def _prepare_backend_for_training(
        self, model: TrainableModel, config: dev.OpenAIServerConfig | None
    ) -> tuple[str, str]:
        self._note("prepare", model=model, config=config)
        return TOLD["inference_url"], "default"

    async def _delete_checkpoints(
        self, model: TrainableModel, benchmark: str = "val/reward", benchmark_smoothing: float = 1.0
    ) -> None:
        self._note("delete", model=model, benchmark=benchmark, benchmark_smoothing=benchmark_smoothing)

    async def _delete_checkpoint_files(self, model: TrainableModel, steps_to_keep: list[int]) -> None:
        self._note("delete", model=model, steps_to_keep=steps_to_keep)

    async def _train_model(
        self,
        model: TrainableModel,
        trajectory_groups: list[TrajectoryGroup],
        config: TrainConfig,
        dev_config: dev.TrainConfig,
        verbose: bool,
    ) -> AsyncIterator[dict[str, float]]:
        self._calls += 1
        given = {"groups": trajectory_groups, "config": config, "dev_config": dev_config, "verbose": verbose}
        self._note("train", model=model, **given)
        yield {"loss": 0.5, "grad_norm": 1.5, "num_gradient_steps": 2}
        if self._calls == FAILING_CALL:
            raise RuntimeError("CUDA out of memory")
        yield {"loss": 0.25, "grad_norm": 0.5, "num_gradient_steps": 2}

    def _note(self, call: str, **given: Any) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps({"call": call, **{name: _told(value) for name, value in given.items()}}) + "\n")


def _told(value: Any) -> Any:
    """A value as JSON; each record has the name of its type."""
    if isinstance(value, list):
        return [_told(each) for each in value]
    if isinstance(value, Model):
        internal = getattr(value, "_internal_config", None)
        return {"type": type(value).__name__, **value.model_dump(), "_internal_config": internal}
    if hasattr(value, "model_fields_set"):
        return {"type": type(value).__name__, **{name: _told(each) for name, each in vars(value).items()}}
    return value if isinstance(value, dict | int | float | str | None) else str(value)


def main() -> None:
    """Serve until the process is killed."""
    module = types.ModuleType("art.local")
    module.LocalBackend = FakeLocalBackend
    sys.modules["art.local"] = module
    from art import cli

    cli.run(host=TOLD["host"], port=int(TOLD["port"]))


main()
