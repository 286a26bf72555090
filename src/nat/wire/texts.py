"""Conversations as text, which the backend turns into the rows that it trains on, and the answers."""

from typing import Any

from pydantic import Field

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
