"""Chat requests and responses as types of a workflow's input and output, in OpenAI's shapes.

A workflow that takes a `ChatRequest` gets the whole conversation of a chat; for one that takes a `str`, the last
user message is enough. Functions convert between these types and text automatically.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class Message(BaseModel):
    """One message of a conversation; keys of other vendors are kept."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """The text of the content, one line per part."""
        if isinstance(self.content, list):
            return "\n".join(str(part["text"]) for part in self.content if part.get("type") == "text")
        return self.content or ""


class ChatRequest(BaseModel):
    """A conversation to answer; fields beyond these are kept."""

    model_config = ConfigDict(extra="allow")

    messages: list[Message] = Field(min_length=1)
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stream: bool = False

    @classmethod
    def from_string(cls, data: str, **options: Any) -> Self:
        """A request of one user message; `options` are further fields."""
        return cls(messages=[Message(role="user", content=data)], **options)

    @property
    def last_user_text(self) -> str:
        """The text of the last user message; without one, of the last message."""
        user_messages = [message for message in self.messages if message.role == "user"]
        return (user_messages or self.messages)[-1].text


class ChatRequestOrMessage(BaseModel):
    """A conversation, or a single text; exactly one of the two."""

    model_config = ConfigDict(extra="allow")

    messages: list[Message] | None = None
    input_message: str | None = None

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if (self.messages is None) == (self.input_message is None):
            raise ValueError("give either messages or input_message")
        return self

    @property
    def request(self) -> ChatRequest:
        """The input as a conversation."""
        if self.input_message is not None:
            return ChatRequest.from_string(self.input_message)
        return ChatRequest(messages=self.messages or [], **(self.model_extra or {}))


class Usage(BaseModel):
    """Tokens of a response."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ChoiceMessage(BaseModel):
    """The message of an answer."""

    content: str | None = None
    role: Role | None = None


class ChoiceDelta(ChoiceMessage):
    """The addition of a chunk to the answer."""


class ChatResponseChoice(BaseModel):
    """One of the answers."""

    message: ChoiceMessage
    finish_reason: str | None = "stop"
    index: int = 0


class ChatResponseChunkChoice(BaseModel):
    """The addition of a chunk to one of the answers."""

    delta: ChoiceDelta
    finish_reason: str | None = None
    index: int = 0


class _Envelope(BaseModel):
    """Fields that complete answers and chunks share."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(default_factory=lambda: f"chatcmpl-{uuid4().hex}")
    model: str = "unknown-model"
    created: datetime = Field(default_factory=lambda: datetime.now(UTC))
    usage: Usage | None = None

    @field_serializer("created")
    def _unix_seconds(self, created: datetime) -> int:
        return int(created.timestamp())

    @classmethod
    def _of(cls, choice: BaseModel, envelope: Mapping[str, Any]) -> Self:
        """With fields of the envelope, as `id_`, `object_`, `model`, `created`; None leaves one at its default."""
        fields = {name.rstrip("_"): value for name, value in envelope.items() if value is not None}
        return cls.model_validate({"choices": [choice], **fields})


class ChatResponse(_Envelope):
    """A complete answer."""

    object: str = "chat.completion"
    choices: list[ChatResponseChoice] = Field(min_length=1)

    @classmethod
    def from_string(cls, data: str, *, usage: Usage | None = None, **envelope: Any) -> Self:
        """An answer with this text, and fields of the envelope."""
        choice = ChatResponseChoice(message=ChoiceMessage(content=data, role="assistant"))
        return cls._of(choice, {"usage": usage or Usage(), **envelope})

    @property
    def text(self) -> str:
        return self.choices[0].message.content or ""


class ChatResponseChunk(_Envelope):
    """A chunk of an answer."""

    object: str = "chat.completion.chunk"
    choices: list[ChatResponseChunkChoice]

    @classmethod
    def from_string(cls, data: str, **options: Any) -> Self:
        """A chunk with this text, by the assistant; `options` are those of `create_streaming_chunk`."""
        return cls.create_streaming_chunk(data, role="assistant", **options)

    @classmethod
    def create_streaming_chunk(
        cls, content: str | None, *, role: Role | None = None, finish_reason: str | None = None, **envelope: Any
    ) -> Self:
        """A chunk of a stream; the last one has a finish reason, and may have the usage."""
        delta = ChoiceDelta(content=content, role=role)
        return cls._of(ChatResponseChunkChoice(delta=delta, finish_reason=finish_reason), envelope)

    @property
    def text(self) -> str:
        return "".join(choice.delta.content or "" for choice in self.choices[:1])
