"""Check and start the training calls of both of ART's protocols."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from nat.art.server import history
from nat.art.server.batch import ArtBatch, make_art_batch
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.training_call import RunningCall
from nat.art.server.training_config import with_default_loss
from nat.art.wire import ArtDevTrainConfig, ArtModel, ArtTrainConfig, ArtTrajectoryGroup, Serving
from nat.backend.model import LoadedModel
from nat.backend.server.bodies import IgnoredFields
from nat.wire.training import JobState

logger = logging.getLogger(__name__)

TRAIN = "train"
"""The split of rollouts that are trained on."""


class Models(Protocol):
    """The models that clients registered; `ArtModels` is the real one, tests have a fake.

    Only `prepare` and `remove` wait for the model thread. A name that cannot be a folder's is a NameRefused everywhere.
    """

    @property
    def base(self) -> LoadedModel:
        """The model that all of them are trained on: its tokenizer and limits."""
        ...

    def register(self, model: ArtModel) -> None: ...

    async def prepare(self, model: ArtModel) -> None:
        """Make or restore a model's weights and serve them; cheap the second time."""
        ...

    def serving(self, model: ArtModel) -> Serving:
        """The base model, and which requested settings have no effect here."""
        ...

    def step(self, model: ArtModel) -> int:
        """The number of the newest checkpoint, 0 if there is none."""
        ...

    def steps(self, model: ArtModel) -> list[int]:
        """All checkpoints on disk, oldest first."""
        ...

    def folder(self, model: ArtModel) -> Path:
        """Where the checkpoints and the history are."""
        ...

    def train(self, model: ArtModel, batch: ArtBatch) -> RunningCall:
        """Begin a training call.

        Raises:
            ModelBusy: one runs already.
            ModelNotPrepared: there are no weights to train.

        """
        ...

    def job(self, job_id: str) -> JobState | None: ...

    async def delete(self, model: ArtModel, steps_to_keep: Collection[int]) -> list[int]:
        """Delete the other checkpoints, but never the newest; gives the deleted steps."""
        ...

    async def remove(self, model: ArtModel) -> None:
        """Stop serving a model and delete all its files.

        Raises:
            ModelBusy: it is being trained.

        """
        ...


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Submissions:
    """Begins training calls, and records the rollouts that clients send."""

    models: Models
    served: ServedAnswers
    now: Callable[[], datetime] = _now
    ignored: IgnoredFields = field(default_factory=IgnoredFields)

    async def start(
        self,
        model: ArtModel,
        groups: Sequence[ArtTrajectoryGroup],
        config: ArtTrainConfig,
        dev: ArtDevTrainConfig,
    ) -> RunningCall:
        """Check the batch, begin, and record the rollouts.

        Raises:
            BatchRefused: it cannot be trained on.
            ModelBusy: a call for this model runs already.
            ModelNotPrepared: the model has no weights yet.

        """
        self.ignored.log({*(config.model_extra or ()), *(dev.model_extra or ())})
        dev = with_default_loss(dev, model, config)
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
            await self._record(model, groups, split=TRAIN, step=step)
        except BaseException:
            call.cancel()
            raise
        return call

    async def log(self, model: ArtModel, groups: Sequence[ArtTrajectoryGroup], split: str) -> None:
        """Record rollouts that were made with the newest weights."""
        await self._record(model, groups, split=split, step=self.models.step(model))

    async def _record(self, model: ArtModel, groups: Sequence[ArtTrajectoryGroup], *, split: str, step: int) -> None:
        folder = self.models.folder(model)
        means = await asyncio.to_thread(history.record, folder, groups, split=split, step=step, recorded_at=self.now())
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
