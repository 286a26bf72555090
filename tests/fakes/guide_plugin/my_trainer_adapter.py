"""The guide's custom trainer adapter."""

import asyncio
from typing import Any

import httpx
from pydantic import BaseModel, Field

from nat.data_models.finetuning import (
    EpisodeItemRole,
    TrainerAdapterConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter


class MyBackendConfig(BaseModel):
    """Configuration for the training backend."""

    endpoint: str = Field(description="Training API endpoint URL")
    api_key: str = Field(description="API key for authentication")
    timeout: int = Field(default=3600, description="Request timeout in seconds")
    learning_rate: float = Field(default=1e-5, description="Learning rate")
    batch_size: int = Field(default=4, description="Training batch size")
    gradient_accumulation_steps: int = Field(default=4, description="Gradient accumulation")


class MyTrainerAdapterConfig(TrainerAdapterConfig, name="my_trainer_adapter"):
    """Configuration for my trainer adapter."""

    backend: MyBackendConfig = Field(description="Backend configuration")
    validate_trajectories: bool = Field(default=True, description="Whether to validate trajectories before submission")


class MyTrainerAdapter(TrainerAdapter):
    def __init__(self, adapter_config: MyTrainerAdapterConfig):
        super().__init__(adapter_config)
        backend = adapter_config.backend
        self.client = httpx.AsyncClient(
            base_url=backend.endpoint,
            timeout=backend.timeout,
            headers={"Authorization": f"Bearer {backend.api_key}"},
        )

    async def is_healthy(self) -> bool:
        return (await self.client.get("/health")).status_code == 200

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        for trajectory in (t for group in trajectories.trajectories for t in group):
            if self.adapter_config.validate_trajectories and trajectory.episode[0].role not in (
                EpisodeItemRole.USER,
                EpisodeItemRole.SYSTEM,
            ):
                raise ValueError("The first message in the trajectory must be from 'user' or 'system'.")
        body = {
            "groups": [[t.model_dump(mode="json") for t in group] for group in trajectories.trajectories],
            "learning_rate": self.adapter_config.backend.learning_rate,
            "batch_size": self.adapter_config.backend.batch_size,
        }
        job = (await self.client.post("/jobs", json=body)).raise_for_status().json()["job"]
        return TrainingJobRef(run_id=trajectories.run_id, backend="my-backend", metadata={"job": job})

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        state = (await self.client.get(f"/jobs/{ref.metadata['job']}")).raise_for_status().json()
        return TrainingJobStatus(
            run_id=ref.run_id,
            backend=ref.backend,
            status=TrainingStatusEnum(state["status"]),
            progress=state.get("progress"),
            message=state.get("message"),
        )

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        while (status := await self.status(ref)).status == TrainingStatusEnum.RUNNING:  # noqa: ASYNC110 - as a plug-in author writes it
            await asyncio.sleep(poll_interval)
        return status

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        pass
