"""The conversations of a rollout, as recorded in the journal and in trajectories."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Beginning(StrEnum):
    """Why a call began a conversation instead of continuing one; the value is the text for the user."""

    FIRST = "first"
    """The call was the first one of the rollout."""
    RETRY = "retry"
    """An earlier call had the same request."""
    FORK = "fork"
    """The call continues after an earlier answer, but differs from the conversation of that answer."""
    REWRITTEN = "rewritten"
    """The call repeats earlier answers, but the answers or the messages before them were changed."""
    RETOKENIZED = "other tokens"
    """The messages continue a conversation, but the prompt's tokens differ from those seen and sampled before."""
    OTHER_SYSTEM_PROMPT = "other system prompt"
    """The call shares no message with earlier calls, not even the system prompt: usually a sub-agent."""
    OTHER_PROMPT = "other prompt"
    """The call differs before any answer; a summarised history looks like this too."""
    OTHER_MODEL = "other model"
    """The call was the first one to another model."""

    @property
    def breaks_a_prefix(self) -> bool:
        """True if the call continues with a history whose tokens differ from those of earlier calls."""
        return self in (Beginning.RETOKENIZED, Beginning.REWRITTEN)


class ConversationRecord(BaseModel):
    """One conversation; its number is its index in the list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    began: Beginning
    parent: int | None = None
    """Number of the conversation that it shares a beginning with, if any."""
    shared: int = Field(default=0, ge=0)
    """Number of leading messages that it has in common with its parent."""
    messages: int = Field(ge=1)
    calls: int = Field(ge=1)
    """Number of its answers that were sampled in this rollout."""
