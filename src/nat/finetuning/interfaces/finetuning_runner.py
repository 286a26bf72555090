"""The interface of a trainer, which runs the epochs."""

from abc import ABC, abstractmethod
from typing import Any

from nat.data_models.finetuning import (
    CurriculumLearningConfig,
    FinetuneConfig,
    TrainerConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)
from nat.finetuning.interfaces.held_out import play_held_out
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter, check_ready
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder

_BIND = "bind_components(trajectory_builder, trainer_adapter)"


class Trainer(ABC):
    """Abstract: coordinates builder and adapter over the epochs."""

    def __init__(self, trainer_config: TrainerConfig, **kwargs: Any) -> None:
        self.trainer_config = trainer_config
        # The guide's signature: all of these are set by `bind_components` and `initialize`.
        self.run_config: FinetuneConfig = None  # type: ignore[assignment]
        self.curriculum_config: CurriculumLearningConfig = None  # type: ignore[assignment]
        self.trajectory_builder: TrajectoryBuilder = None  # type: ignore[assignment]
        self.trainer_adapter: TrainerAdapter = None  # type: ignore[assignment]
        self._curriculum_state: dict[str, Any] = None  # type: ignore[assignment]

    async def bind_components(self, trajectory_builder: TrajectoryBuilder, trainer_adapter: TrainerAdapter) -> None:
        """Set the two other components; called before `initialize`, when all three are built."""
        self.trajectory_builder = trajectory_builder
        self.trainer_adapter = trainer_adapter

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Initialize the trainer, its curriculum state, the builder and the adapter."""
        for component in (self.trajectory_builder, self.trainer_adapter):
            check_ready(self, component, first=_BIND)
        self.run_config = run_config
        self.trainer_config.reward = run_config.reward_function
        self.curriculum_config = run_config.curriculum_learning
        self._curriculum_state = {
            "current_percentile": self.curriculum_config.initial_percentile,
            "last_expansion_epoch": -1,
            "total_groups": 0,
            "included_groups": set(),
        }
        await self.trajectory_builder.initialize(run_config)
        await self.trainer_adapter.initialize(run_config)

    @abstractmethod
    async def run_epoch(self, epoch: int, run_id: str) -> TrainingJobRef | None:
        """Collect, choose and submit one epoch; None if nothing was submitted."""
        raise NotImplementedError

    @abstractmethod
    async def run(self, num_epochs: int) -> list[TrainingJobStatus]:
        """Run all epochs; returns the final status of each job."""
        raise NotImplementedError

    @abstractmethod
    async def get_metrics(self, run_id: str) -> dict[str, Any]:
        """Metrics of the run so far."""
        raise NotImplementedError

    @abstractmethod
    async def cleanup(self) -> None:
        """Release all resources; called once, whatever happened before."""
        raise NotImplementedError

    @abstractmethod
    def log_progress(self, epoch: int, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Save or show the metrics of an epoch."""
        raise NotImplementedError

    async def run_validation_evaluation(self, epoch: int, run_id: str) -> dict[str, Any]:
        """Play the validation dataset with the weights after `epoch` epochs; failures are counted, not scored.

        Keys: avg_reward, min_reward, max_reward, num_examples, num_failed, scores (example id → score or
        None), epoch, dataset_type.

        Raises:
            EvaluationError: no held-out example got a score.

        """
        check_ready(self, self.trajectory_builder, first=_BIND)
        check_ready(self, self.trajectory_builder.run_config)
        return await play_held_out(self.trajectory_builder, epoch)

    def apply_curriculum_learning(
        self, trajectory_collection: TrajectoryCollection, epoch: int
    ) -> TrajectoryCollection:
        """Choose among the epoch's groups."""
        raise NotImplementedError("Override to implement curriculum learning")

    def get_curriculum_state(self) -> dict[str, Any]:
        """The state and the configuration of the curriculum, as JSON values."""
        check_ready(self, self._curriculum_state)
        state = self._curriculum_state
        return {
            **state,
            "included_groups": sorted(state["included_groups"]),
            "config": self.curriculum_config.model_dump(mode="json"),
        }
