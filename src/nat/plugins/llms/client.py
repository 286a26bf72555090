"""The OpenAI SDK's client, with every call recorded; and what it shares with the clients of frameworks."""

import os
from typing import Any, Self

from openai import AsyncOpenAI

from nat.capture.http import CapturingAsyncClient
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import ConfigError
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tap import open_tap


class ForOneModel:
    """Lets a client of the SDK know which model it is for; a copy is for the same model."""

    model_name: str = ""

    def copy(self, **options: Any) -> Self:
        """The SDK's `copy`."""
        clone: Self = super().copy(**options)  # type: ignore[misc]  # the SDK's clients, which stand beside it, have it
        clone.model_name = self.model_name
        return clone

    with_options = copy


class OpenAIClient(ForOneModel, AsyncOpenAI):
    """An `AsyncOpenAI` that knows which model it is for."""


def open_client(
    config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum = LLMFrameworkEnum.OPENAI
) -> OpenAIClient:
    """A client to be closed by whoever opens it (`async with`); its calls are noted as the framework's."""
    tap = open_tap(config, llm_name=llm_name, framework=framework)
    client = OpenAIClient(**connection(config, llm_name=llm_name), http_client=CapturingAsyncClient(tap))
    client.model_name = config.model_name
    return client


def connection(config: OpenAIModelConfig, *, llm_name: str | None) -> dict[str, Any]:
    """How to reach the server, under the names that the SDK has for it and frameworks have taken over."""
    return {
        "api_key": api_key(config, llm_name=llm_name),
        "base_url": config.base_url,
        "max_retries": config.max_retries,
        "timeout": config.timeout,
    }


def api_key(config: OpenAIModelConfig, *, llm_name: str | None) -> str:
    """The key from config or environment; a server of one's own may do without."""
    if config.api_key is not None:
        return config.api_key.get_secret_value()
    key = os.environ.get("OPENAI_API_KEY")
    if key:
        return key
    if config.base_url or os.environ.get("OPENAI_BASE_URL"):
        return "none"
    raise ConfigError(
        [f"llms.{llm_name or config.model_name}.api_key: OpenAI wants a key; there is none here or in the environment"],
        hint="set OPENAI_API_KEY, or set base_url to the server that you mean",
    )
