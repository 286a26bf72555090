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
    def from_string(cls, data: str, **fields: Any) -> Self:
        """A request of one user message."""
        return cls(messages=[Message(role="user", content=data)], **fields)

    @property
    def text(self) -> str:
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

    @classmethod
    def from_string(cls, data: str, **fields: Any) -> Self:
        return cls(input_message=data, **fields)

    @property
    def request(self) -> ChatRequest:
        """The input as a conversation."""
        messages = self.messages or [Message(role="user", content=self.input_message)]
        return ChatRequest(messages=messages, **(self.model_extra or {}))

    @property
    def text(self) -> str:
        return self.request.text


class Usage(BaseModel):
    """Tokens of a response."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ChoiceMessage(BaseModel):
    """The message of an answer, or what a chunk adds to it."""

    content: str | None = None
    role: Role | None = None


ChoiceDelta = ChoiceMessage


class ChatResponseChoice(BaseModel):
    """One of the answers."""

    message: ChoiceMessage
    finish_reason: str | None = "stop"
    index: int = 0


class ChatResponseChunkChoice(BaseModel):
    """The addition of a chunk to one of the answers."""

    delta: ChoiceMessage
    finish_reason: str | None = None
    index: int = 0


class _Answer(BaseModel):
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
    def _of(cls, choice: BaseModel, fields: Mapping[str, Any]) -> Self:
        """None leaves a field at its default; `id` and `object` are `id_` and `object_`, as in the toolkit."""
        given = {name.rstrip("_"): value for name, value in fields.items() if value is not None}
        return cls.model_validate({"choices": [choice], **given})


class ChatResponse(_Answer):
    """A complete answer."""

    object: str = "chat.completion"
    choices: list[ChatResponseChoice] = Field(min_length=1)

    @classmethod
    def from_string(cls, data: str, **fields: Any) -> Self:
        """An answer with this text; `fields` are `id_`, `object_`, `model`, `created` and `usage`."""
        choice = ChatResponseChoice(message=ChoiceMessage(content=data, role="assistant"))
        return cls._of(choice, {"usage": Usage()} | fields)

    @property
    def text(self) -> str:
        return self.choices[0].message.content or ""


class ChatResponseChunk(_Answer):
    """A chunk of an answer."""

    object: str = "chat.completion.chunk"
    choices: list[ChatResponseChunkChoice]

    @classmethod
    def from_string(cls, data: str, **fields: Any) -> Self:
        """A chunk with this text, by the assistant; `fields` are those of `create_streaming_chunk`."""
        return cls.create_streaming_chunk(data, role="assistant", **fields)

    @classmethod
    def create_streaming_chunk(
        cls, content: str | None, *, role: Role | None = None, finish_reason: str | None = None, **fields: Any
    ) -> Self:
        """A chunk of a stream; the last one has a finish reason, and may have the usage."""
        delta = ChoiceMessage(content=content, role=role)
        return cls._of(ChatResponseChunkChoice(delta=delta, finish_reason=finish_reason), fields)

    @property
    def text(self) -> str:
        return "".join(choice.delta.content or "" for choice in self.choices[:1])


Chat = ChatRequest | ChatRequestOrMessage | ChatResponse | ChatResponseChunk
"""`from_string` makes one of a text, and `text` is its text."""
