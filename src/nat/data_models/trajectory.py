"""Episodes with their rewards: what a trajectory builder gives and a trainer adapter takes."""

from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, model_validator

from nat.secrets import excerpt


class EpisodeItemRole(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    FUNCTION = "function"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    OTHER = "other"


class EpisodeItem(BaseModel):
    """One message; what the model said carries the log probabilities that it was sampled with."""

    role: EpisodeItemRole
    content: str
    logprobs: Any | None = None
    metadata: dict[str, Any] | None = None

    @property
    def sampled(self) -> bool:
        """False for an assistant message that the policy did not say: a few-shot example, an edited history."""
        return (self.metadata or {}).get("sampled") is not False

    @model_validator(mode="after")
    def _an_assistant_has_logprobs(self) -> Self:
        if self.role is EpisodeItemRole.ASSISTANT and self.logprobs is None:
            raise ValueError(
                f"the assistant message {excerpt(repr(self.content), 60)} has no logprobs; it cannot be trained on"
            )
        return self


class OpenAIMessage(BaseModel):
    """A chat message reduced to role and text."""

    role: str
    content: str


class DPOItem(BaseModel):
    """A prompt with a better and a worse answer."""

    prompt: list[OpenAIMessage] | str
    chosen_response: str
    rejected_response: str


class Trajectory(BaseModel):
    """One run of the agent and what it was worth."""

    episode: list[EpisodeItem] | list[DPOItem]
    reward: float
    shaped_rewards: list[float] | None = None
    """What each of the `answers` is compared by, in their order; None: all of them by the reward."""
    metadata: dict[str, Any] | None = None

    @property
    def answers(self) -> list[EpisodeItem]:
        """What is trained on: the assistant items of the episode, less those whose metadata says `sampled: false`."""
        items = [item for item in self.episode if isinstance(item, EpisodeItem)]
        return [item for item in items if item.role is EpisodeItemRole.ASSISTANT and item.sampled]


class TrajectoryCollection(BaseModel):
    """All trajectories of an epoch; each inner list holds the generations of one example."""

    trajectories: list[list[Trajectory]]
    run_id: str
