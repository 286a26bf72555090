"""What an LLM provider's build function yields."""

from pydantic import BaseModel, ConfigDict, SerializeAsAny

from nat.data_models.llm import LLMBaseConfig


class LLMProviderInfo(BaseModel):
    """How to reach a model; `config` may be of another type than the YAML's, and its type chooses the client."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: SerializeAsAny[LLMBaseConfig]
    description: str = ""

    def check(self) -> None:
        """Raise BackendUnreachable if the server is known to be dead; for providers that own a process."""

    async def probe(self, llm_name: str) -> None:
        """Raise BackendUnreachable, naming the LLM, if nobody listens at its address; for servers of others."""
