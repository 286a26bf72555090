"""The result of an LLM provider's build function."""

from pydantic import BaseModel, ConfigDict, SerializeAsAny

from nat.data_models.llm import LLMBaseConfig


class LLMProviderInfo(BaseModel):
    """How to reach a model; the type of `config` selects the client and may differ from the type in the YAML."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: SerializeAsAny[LLMBaseConfig]
    description: str = ""

    def check(self) -> None:
        """Raise BackendUnreachable if the server is known to be dead; for providers that start a process."""

    async def probe(self, llm_name: str) -> None:
        """Raise BackendUnreachable, naming the LLM, if no server listens at its address; for external servers."""
