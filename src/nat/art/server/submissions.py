"""Check and start the training calls of both of ART's protocols."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nat.art.server import history
from nat.art.server.batch import make_art_batch
from nat.art.server.models import ArtModels
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.training_call import TrainingCall
from nat.art.wire import ArtDevTrainConfig, ArtModel, ArtTrainConfig, ArtTrajectoryGroup
from nat.backend.server.bodies import log_ignored

logger = logging.getLogger(__name__)

TRAIN = "train"
"""The split of rollouts that are trained on."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Submissions:
    """Begins training calls, and records the rollouts that clients send."""

    models: ArtModels
    served: ServedAnswers
    now: Callable[[], datetime] = _now
    ignored: set[str] = field(default_factory=set)

    async def start(
        self,
        model: ArtModel,
        groups: Sequence[ArtTrajectoryGroup],
        config: ArtTrainConfig,
        dev: ArtDevTrainConfig,
    ) -> TrainingCall:
        """Check the batch, begin, and record the rollouts.

        Raises:
            BatchRefused: it cannot be trained on.
            ModelBusy: a call for this model runs already.
            ModelNotPrepared: the model has no weights yet.

        """
        log_ignored({*(config.model_extra or ()), *(dev.model_extra or ())}, self.ignored)
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
