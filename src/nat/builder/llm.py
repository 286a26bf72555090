"""What an LLM provider's build function yields."""

from dataclasses import dataclass

from nat.data_models.llm import LLMBaseConfig


@dataclass(kw_only=True)
class LLMProviderInfo:
    """How to reach a model; `config` may be of another type than the YAML's, and its type chooses the client."""

    config: LLMBaseConfig
    description: str = ""
