"""The base of every LLM config."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field

from nat.data_models.common import TypedBaseModel


class APITypeEnum(StrEnum):
    """The HTTP API that a client speaks; chat completions is the one that capture reads."""

    CHAT_COMPLETION = "chat_completion"


@dataclass(frozen=True)
class ModelEndpoint:
    """What the requests of an LLM ask for, on a server that speaks OpenAI's API."""

    model: str
    base_url: str | None
    """None for OpenAI itself."""
    defaults: Mapping[str, Any]
    """Fields of requests that do not set them."""


class LLMBaseConfig(TypedBaseModel):
    """A model, named in the YAML under `llms`."""

    api_type: APITypeEnum = Field(default=APITypeEnum.CHAT_COMPLETION)
    """The HTTP API that the client speaks."""

    @property
    def openai_endpoint(self) -> ModelEndpoint | None:
        """Where the requests go; None for an LLM that speaks another API."""
        return None
