"""The guide's custom trainer."""

import logging
from typing import Any
from uuid import uuid4

from nat.data_models.finetuning import (
    FinetuneConfig,
    TrainerConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.finetuning.interfaces.finetuning_runner import Trainer

logger = logging.getLogger(__name__)


class MyTrainerConfig(TrainerConfig, name="my_trainer"):
    """Configuration for my trainer."""


class MyTrainer(Trainer):
    cleaned_up = 0

    async def initialize(self, run_config: FinetuneConfig) -> None:
        await super().initialize(run_config)
        self.run_id = f"my_run_{uuid4().hex[:8]}"
        self.statuses: list[TrainingJobStatus] = []

    async def run_epoch(self, epoch: int, run_id: str) -> TrainingJobRef | None:
        await self.trajectory_builder.start_run(run_id, meta={"epoch": epoch})
        collection = await self.trajectory_builder.finalize(run_id)
        if not collection.trajectories:
            logger.warning("No trajectories collected for epoch %d", epoch)
            return None
        collection = self.apply_curriculum_learning(collection, epoch)
        rewards = [t.reward for group in collection.trajectories for t in group]
        self.log_progress(epoch, {"avg_reward": sum(rewards) / len(rewards)})
        return await self.trainer_adapter.submit(collection)

    async def run(self, num_epochs: int) -> list[TrainingJobStatus]:
        for epoch in range(num_epochs):
            ref = await self.run_epoch(epoch, self.run_id)
            if ref is None:
                done = TrainingStatusEnum.COMPLETED
                self.statuses.append(TrainingJobStatus(run_id=self.run_id, backend="none", status=done))
                continue
            self.statuses.append(await self.trainer_adapter.wait_until_complete(ref, poll_interval=0.001))
            if self.statuses[-1].status == TrainingStatusEnum.FAILED:
                break
        return self.statuses

    def apply_curriculum_learning(
        self, trajectory_collection: TrajectoryCollection, epoch: int
    ) -> TrajectoryCollection:
        self._curriculum_state["total_groups"] = len(trajectory_collection.trajectories)
        return trajectory_collection

    async def get_metrics(self, run_id: str) -> dict[str, Any]:
        return {"run_id": run_id, "jobs": len(self.statuses)}

    async def cleanup(self) -> None:
        type(self).cleaned_up += 1
        await self.trainer_adapter.client.aclose()

    def log_progress(self, epoch: int, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        logger.info("Epoch %d: %s", epoch, metrics)
