"""What a journal and a trajectory say of the conversations of a rollout."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Beginning(StrEnum):
    """Why a call began a conversation instead of continuing one; the value is the words shown to the user."""

    FIRST = "first"
    """It was the first call of the rollout."""
    RETRY = "retry"
    """Another call had asked the very same already."""
    FORK = "fork"
    """It goes on from an earlier answer in another way than the conversation which that answer is part of."""
    REWRITTEN = "rewritten"
    """It repeats answers of the rollout, but what was said before them, or they themselves, was changed."""
    RETOKENIZED = "other tokens"
    """It goes on by its messages, but its prompt's tokens are not those that were seen and sampled before."""
    OTHER_SYSTEM_PROMPT = "other system prompt"
    """It shares nothing with what was said, not even its system prompt: a sub-agent, as a rule."""
    OTHER_PROMPT = "other prompt"
    """It asks something else, before any answer; a history that was summed up looks like this, too."""
    OTHER_MODEL = "other model"
    """It was the first call to another model."""

    @property
    def breaks_a_prefix(self) -> bool:
        """True if the call goes on with a history whose tokens are not those of the calls before it."""
        return self in (Beginning.RETOKENIZED, Beginning.REWRITTEN)


class ConversationRecord(BaseModel):
    """One conversation; its number is its place in the list that it is in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    began: Beginning
    parent: int | None = None
    """Number of the conversation that it begins like; None if it begins like none."""
    shared: int = Field(default=0, ge=0)
    """How many messages, from the first one on, it has in common with its parent: where it leaves it."""
    messages: int = Field(ge=1)
    calls: int = Field(ge=1)
    """Answers in it that were sampled in this rollout."""
