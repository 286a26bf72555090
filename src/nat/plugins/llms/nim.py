"""The `nim` LLM: a model of NVIDIA's API or of a NIM container, with the clients of the `openai` LLM."""

from typing import Any, ClassVar

from pydantic import Field, SecretStr, model_validator

from nat.plugins.llms.openai import Host, OpenAIModelConfig, provider_of
from nat.registry.decorators import from_config, register_llm_provider


class NIMModelConfig(OpenAIModelConfig, name="nim"):
    """A model of NVIDIA's API, or behind a NIM container; the keys are those of `openai`."""

    host: ClassVar[Host] = Host(
        "NVIDIA's API",
        key_variable="NVIDIA_API_KEY",
        url_variable="NVIDIA_BASE_URL",
        url="https://integrate.api.nvidia.com/v1",
    )

    api_key: SecretStr | None = None
    """Key of the server; default: the environment variable NVIDIA_API_KEY."""
    base_url: str | None = None
    """URL of the server with `/v1`; default: the environment variable NVIDIA_BASE_URL, or NVIDIA's API."""
    max_tokens: int | None = Field(default=300, ge=1)
    """Limit of new tokens for requests that set none; the gateway also enforces it as a maximum."""

    @model_validator(mode="before")
    @classmethod
    def _no_default_beside_the_newer_name(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("max_completion_tokens") is not None:
            return {"max_tokens": None, **data}
        return data


register_llm_provider(config_type=NIMModelConfig)(from_config(provider_of))
