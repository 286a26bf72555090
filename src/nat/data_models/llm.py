"""The base of every LLM config."""

from enum import StrEnum

from pydantic import Field

from nat.data_models.common import TypedBaseModel


class APITypeEnum(StrEnum):
    """The HTTP API that a client speaks; chat completions is the one that capture reads."""

    CHAT_COMPLETION = "chat_completion"


class LLMBaseConfig(TypedBaseModel):
    """A model, named in the YAML under `llms`."""

    api_type: APITypeEnum = Field(default=APITypeEnum.CHAT_COMPLETION)
    """The HTTP API that the client speaks."""
