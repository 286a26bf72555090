"""OpenPipe ART's serverless protocol: what the native remote client of 0.5.18 sends, and what it is answered."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from nat.wire.art import ArtDevTrainConfig, ArtRecord, ArtTrajectoryGroup, Label


class ServerlessModelRequest(ArtRecord):
    """POST /v1/preview/models."""

    entity: Label | None = None
    project: str
    name: str
    base_model: Label | None = None
    return_existing: bool = False


class ServerlessModel(BaseModel):
    """A model as the client keeps it; its entity is part of the name that samples from it."""

    id: str
    entity: str
    project: str
    name: str
    base_model: str
    run_id: str | None = None


class ServerlessLogRequest(ArtRecord):
    """POST /v1/preview/models/{id}/log."""

    trajectory_groups: list[ArtTrajectoryGroup]
    split: str = "val"


class ServerlessCheckpoint(BaseModel):
    """A step of a model, with what its history says of it."""

    id: str
    step: int
    metrics: dict[str, float]


class ServerlessDeleteRequest(ArtRecord):
    """DELETE /v1/preview/models/{id}/checkpoints."""

    steps: list[int]


class ServerlessDeleteAnswer(BaseModel):
    """What became of the steps; those that are not there, or are the newest, are not found."""

    deleted_count: int
    not_found_steps: list[int]


class ServerlessExperimentalConfig(ArtDevTrainConfig):
    """`experimental_config`: the learning rate stands among the rest; what is left out is as 0.5.18 has it."""

    ppo: bool | None = False
    learning_rate: float = Field(default=5e-6, gt=0)


class ServerlessTrainRequest(ArtRecord):
    """POST /v1/preview/training-jobs."""

    model_id: str
    trajectory_groups: list[ArtTrajectoryGroup]
    experimental_config: Annotated[ServerlessExperimentalConfig, BeforeValidator(lambda value: value or {})] = (
        ServerlessExperimentalConfig()
    )


class ServerlessJob(BaseModel):
    """A training job that has begun."""

    id: str


class ServerlessEvent(BaseModel):
    """What happened to a job; ids count up from 1."""

    id: str
    type: Literal["training_started", "gradient_step", "training_ended", "training_failed"]
    data: dict[str, float | str]
