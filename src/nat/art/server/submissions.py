"""Check and start the training calls of both of ART's protocols."""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from nat.art.server.batch import make_art_batch
from nat.art.server.models import ArtModels
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.training_call import TrainingCall
from nat.art.wire import ArtDevTrainConfig, ArtModel, ArtTrainConfig, ArtTrajectoryGroup
from nat.backend.server.bodies import log_ignored

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submissions:
    """Begins training calls; clients keep the rollouts and their metrics themselves."""

    models: ArtModels
    served: ServedAnswers
    ignored: set[str] = field(default_factory=set)

    async def start(
        self, model: ArtModel, groups: Sequence[ArtTrajectoryGroup], config: ArtTrainConfig, dev: ArtDevTrainConfig
    ) -> TrainingCall:
        """Check the batch, and begin.

        Raises:
            BatchRefused: it cannot be trained on.
            ModelBusy: a call for this model runs already.
            ModelNotPrepared: the model has no weights yet.

        """
        batch = await asyncio.to_thread(
            make_art_batch, groups, config, dev, model=model, loaded=self.models.base, served=self.served
        )
        extra = {**(config.model_extra or {}), **(dev.model_extra or {})}
        log_ignored({name for name, value in extra.items() if value is not False}, self.ignored)
        step, call = self.models.step(model), self.models.train(model, batch)
        rewards = [trajectory.reward for group in groups for trajectory in group.trajectories]
        logger.info(
            "%s/%s, step %d: %d rollouts in %d groups, mean reward %.4f, %d raised",
            model.project,
            model.name,
            step,
            len(rewards),
            len(groups),
            fmean(rewards) if rewards else math.nan,
            sum(len(group.exceptions) for group in groups),
        )
        return call
