"""The generic trainer and trajectory builder under ART's names, with run ids as ART's users know them."""

import logging
from typing import ClassVar

from nat.art.client.config import ARTTrainerConfig, ARTTrajectoryBuilderConfig
from nat.art.client.trainer_adapter import ARTTrainerAdapter
from nat.data_models.finetuning import FinetuneConfig
from nat.finetuning.trainer import EpochTrainer
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder
from nat.registry.decorators import from_config, register_trainer, register_trajectory_builder

logger = logging.getLogger(__name__)


class ARTTrainer(EpochTrainer):
    """Runs epochs one after the other; each epoch's rollouts use the weights that the server serves."""

    title: ClassVar[str] = "OpenPipe ART Runner"
    run_prefix: ClassVar[str] = "art_run_"

    async def initialize(self, run_config: FinetuneConfig) -> None:
        logger.info("Initializing %s", self.title)
        await super().initialize(run_config)

    async def cleanup(self) -> None:
        """Close the adapter, too, which nobody else does for one that the guide's constructor made."""
        await super().cleanup()
        if isinstance(self.trainer_adapter, ARTTrainerAdapter):
            await self.trainer_adapter.close()


register_trainer(config_type=ARTTrainerConfig)(from_config(ARTTrainer))


class ARTTrajectoryBuilder(EvalTrajectoryBuilder):
    """One trajectory per scored rollout, grouped by example."""


register_trajectory_builder(config_type=ARTTrajectoryBuilderConfig)(from_config(ARTTrajectoryBuilder))
