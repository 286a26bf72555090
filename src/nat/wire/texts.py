"""Conversations as text, which the backend turns into the rows that it trains on, and the answers."""

from itertools import pairwise
from typing import Any, Self

from pydantic import Field, model_validator

from nat.wire.json import Several
from nat.wire.training import TrainingRow, WireModel

MAX_CONVERSATIONS = 64
"""Conversations in a request."""


class Conversation(WireModel):
    """Chat messages, some of which to learn from."""

    messages: Several[dict[str, Any]] = Field(min_length=1)
    """In the form of the chat API."""
    tools: Several[dict[str, Any]] | None = None
    """What the model could call, in the form of the chat API."""
    answers: Several[int] = Field(min_length=1)
    """Indices of the messages of the assistant to learn from, in rising order."""

    @model_validator(mode="after")
    def _answers_are_of_the_assistant(self) -> Self:
        for at in self.answers:
            role = self.messages[at].get("role") if 0 < at < len(self.messages) else None  # an answer follows something
            if role != "assistant":
                seen = "is not there" if role is None else f"is of the role {role!r}"
                raise ValueError(
                    f"answers names the message {at}, which {seen}; wanted is one of the assistant's, not the first"
                )
        if any(before >= after for before, after in pairwise(self.answers)):
            raise ValueError("answers must name each message once, in rising order")
        return self


class TokenizeRequest(WireModel):
    """Conversations to turn into rows."""

    conversations: Several[Conversation] = Field(min_length=1, max_length=MAX_CONVERSATIONS)


class TokenizedConversation(WireModel):
    """The rows of a conversation, or why there are none."""

    rows: list[TrainingRow] = Field(default_factory=list)
    """As few as the chat template allows; their spans have no log probabilities."""
    problem: str | None = None


class TokenizeAnswer(WireModel):
    """The conversations of a request, in their order."""

    conversations: list[TokenizedConversation]
