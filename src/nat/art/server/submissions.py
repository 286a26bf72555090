"""Check and start the training calls of both of ART's protocols, and keep the averages of rollouts.

A model's folder has them in `history.jsonl`, a line for each call; clients keep the rollouts themselves.
"""

import asyncio
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import TypeVar

from nat.art.server.batch import make_art_batch
from nat.art.server.models import ArtModels
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.training_call import TrainingCall
from nat.art.wire import ArtDevTrainConfig, ArtModel, ArtTrainConfig, ArtTrajectoryGroup
from nat.backend.server.bodies import log_ignored

logger = logging.getLogger(__name__)

HISTORY = "history.jsonl"
T = TypeVar("T")
Row = Mapping[str, object]
"""A line of the history: `step`, `recorded_at`, and metrics named `split/metric`."""


@dataclass(frozen=True)
class Submissions:
    """Begins training calls, and records the rollouts that clients send."""

    models: ArtModels
    served: ServedAnswers
    ignored: set[str] = field(default_factory=set)

    async def start(
        self, model: ArtModel, groups: Sequence[ArtTrajectoryGroup], config: ArtTrainConfig, dev: ArtDevTrainConfig
    ) -> TrainingCall:
        """Check the batch, begin, and record the rollouts.

        Raises:
            BatchRefused: it cannot be trained on.
            ModelBusy: a call for this model runs already.
            ModelNotPrepared: the model has no weights yet.

        """
        extra = {**(config.model_extra or {}), **(dev.model_extra or {})}
        log_ignored({name for name, value in extra.items() if value is not False}, self.ignored)
        batch = await asyncio.to_thread(
            make_art_batch,
            groups,
            config,
            dev,
            internal=model.internal_config,
            loaded=self.models.base,
            served=self.served,
        )
        step = self.models.step(model)
        call = self.models.train(model, batch)
        try:
            await self._record(model, groups, split="train", step=step)
        except BaseException:
            call.cancel()
            raise
        return call

    async def log(self, model: ArtModel, groups: Sequence[ArtTrajectoryGroup], split: str) -> None:
        """Record rollouts that were made with the newest weights."""
        await self._record(model, groups, split=split, step=self.models.step(model))

    async def _record(self, model: ArtModel, groups: Sequence[ArtTrajectoryGroup], *, split: str, step: int) -> None:
        means = averages(groups)
        metrics = {f"{split}/{name}": value for name, value in means.items()}
        row = {"step": step, "recorded_at": datetime.now(UTC).isoformat(), **metrics}
        await asyncio.to_thread(_append, self.models.folder(model) / HISTORY, json.dumps(row))
        logger.info(
            "%s/%s, step %d, %s: %d rollouts in %d groups, mean reward %.4f, %.0f%% raised",
            model.project,
            model.name,
            step,
            split,
            sum(len(group.trajectories) for group in groups),
            len(groups),
            means.get("reward", math.nan),
            100 * means.get("exception_rate", 0.0),
        )


def history(folder: Path) -> list[Row]:
    """All lines of a model's history, except one that a crash left half written."""
    rows: list[Row] = []
    path = folder / HISTORY
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def averages(groups: Sequence[ArtTrajectoryGroup]) -> dict[str, float]:
    """Means over all rollouts; `reward_std_dev` is the mean over groups, `exception_rate` the share that raised."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    raised = sum(len(group.exceptions) for group in groups)
    means = _means(entry for t in trajectories for entry in {**t.metrics, "reward": t.reward}.items())
    if spreads := [pstdev([t.reward for t in group.trajectories]) for group in groups if group.trajectories]:
        means["reward_std_dev"] = fmean(spreads)
    if trajectories or raised:
        means["exception_rate"] = raised / (len(trajectories) + raised)
    return means


def metrics_of(rows: Iterable[Row], step: int) -> dict[str, float]:
    """The mean of each metric over the rows of one step."""
    entries = (entry for row in rows if row.get("step") == step for entry in row.items())
    return _means((name, value) for name, value in entries if isinstance(value, int | float) and name != "step")


def _means(entries: Iterable[tuple[T, float]]) -> dict[T, float]:
    """The mean of all values of a name."""
    found: dict[T, list[float]] = {}
    for name, value in entries:
        found.setdefault(name, []).append(float(value))
    return {name: fmean(values) for name, values in found.items()}


def _append(path: Path, line: str) -> None:
    """Append a whole line; if a crash cut the last one short, begin a new line first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        size = file.seek(0, 2)
        torn = size > 0 and (file.seek(size - 1), file.read(1))[1] != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")
