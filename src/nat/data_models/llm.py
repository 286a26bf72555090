"""The base class of LLM configs, and the agent frameworks that get clients for an LLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import Field

from nat.data_models.common import TypedBaseModel
from nat.wire.sampling import Sampling, read_sampling

USUAL_CONCURRENCY = 8
"""Rollouts at the same time with servers and programs of which nothing is known."""


class APITypeEnum(StrEnum):
    """The HTTP API that a client uses; capture reads chat completions."""

    CHAT_COMPLETION = "chat_completion"


@dataclass(frozen=True)
class ModelEndpoint:
    """Model, server and defaults of an LLM's requests, on a server with OpenAI's API."""

    model: str
    base_url: str | None
    """None for OpenAI itself."""
    defaults: Mapping[str, Any]
    """Fields for requests that do not set them."""

    @property
    def sampling(self) -> Sampling:
        """How requests that set nothing are sampled."""
        return read_sampling(self.defaults)


class LLMBaseConfig(TypedBaseModel):
    """A model, named in the YAML under `llms`."""

    api_type: APITypeEnum = Field(default=APITypeEnum.CHAT_COMPLETION)
    """The HTTP API that the client uses."""

    usual_trainer_adapter: ClassVar[str | None] = None
    """`_type` of the trainer adapter where the YAML has none. Its `llm` is the LLM's key, and all else needs a default.
    None: the YAML must have one."""

    def pinned(self) -> Self:
        """The same model by a name that always means these weights; a run keeps it. May download the model.

        Raises:
            BackendError: the model cannot be had.

        """
        return self

    @property
    def most_at_a_time(self) -> int:
        """Rollouts that its server suits at the same time unless the user says how many."""
        return USUAL_CONCURRENCY

    @property
    def waits_for_updates(self) -> bool:
        """Whether no request is answered while the weights are trained, so that nothing can be played meanwhile."""
        return False

    @property
    def openai_endpoint(self) -> ModelEndpoint | None:
        """Where requests are sent; None for an LLM with another API."""
        return None


class LLMFrameworkEnum(StrEnum):
    """Values of `wrapper_type`; plug-ins may use other strings."""

    LANGCHAIN = "langchain"
    LLAMA_INDEX = "llama_index"
    CREWAI = "crewai"
    SEMANTIC_KERNEL = "semantic_kernel"
    AGNO = "agno"
    ADK = "adk"
    STRANDS = "strands"
    AUTOGEN = "autogen"
    OPENAI = "openai"
    OPENAI_SYNC = "openai_sync"
    OPENAI_AGENTS = "openai_agents"
    PYDANTIC_AI = "pydantic_ai"
    SMOLAGENTS = "smolagents"
