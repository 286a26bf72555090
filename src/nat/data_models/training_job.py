"""A job of a training backend, as the three finetuning interfaces speak of it."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field


class TrainingStatusEnum(StrEnum):
    """Life of a job; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class TrainingJobRef(BaseModel):
    """How to find a job again."""

    run_id: str
    backend: str
    metadata: dict[str, Any] | None = None


class TrainingJobStatus(BaseModel):
    """What the backend said about a job."""

    run_id: str
    backend: str
    status: TrainingStatusEnum
    progress: float | None = Field(default=None, ge=0.0, le=100.0)
    """Percent done."""
    message: str | None = None
    metadata: dict[str, Any] | None = None
