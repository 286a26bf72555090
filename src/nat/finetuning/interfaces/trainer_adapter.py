"""What brings trajectories to a training backend."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from nat.data_models.finetuning import (
    FinetuneConfig,
    ServedModel,
    TrainerAdapterConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)


class TrainerAdapter(ABC):
    """Abstract: submits trajectories as training jobs and tells how the jobs stand."""

    def __init__(self, adapter_config: TrainerAdapterConfig) -> None:
        self.adapter_config = adapter_config
        self.run_config: FinetuneConfig = None  # type: ignore[assignment] # the guide's signature; set by `initialize`

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Called once, before anything else."""
        self.run_config = run_config
        self.adapter_config.reward = run_config.reward_function

    @abstractmethod
    async def is_healthy(self) -> bool:
        """True if the backend can take jobs; asked before the first rollout."""
        raise NotImplementedError

    @abstractmethod
    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        """Send an epoch's trajectories; returns as soon as the backend has them."""
        raise NotImplementedError

    @abstractmethod
    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        """How the job stands; final states are told again and again."""
        raise NotImplementedError

    @abstractmethod
    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        """Wait for the job's end.

        Of the final status, `metadata["metrics"]` (name → number) goes into the epoch's metrics, and
        `metadata["policy_version"]` names the new weights. The metrics `trained_groups` and `trained_tokens` say what
        the job trained; without them, that is taken to be what was submitted.
        """
        raise NotImplementedError

    @abstractmethod
    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Keep metrics of a job where the adapter wants them."""
        raise NotImplementedError

    @property
    def compares_across_groups(self) -> bool:
        """True if the algorithm compares rewards of the whole batch, so that groups of equal rewards still teach."""
        return False

    async def export_model(self, name: str) -> Path | None:  # noqa: ARG002 - for those who override it
        """Write the trained model under that name; None if the backend keeps it."""
        return None

    async def served_model(self) -> ServedModel | None:
        """Where the backend serves the trained model; None if it does not outlive the run there."""
        return None
