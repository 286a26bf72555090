"""The OpenAI SDK's synchronous client, with every call recorded."""

from typing import Any, Self

from openai import OpenAI

from nat.capture.http import CapturingClient
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.client import api_key
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tap import open_tap


class BlockingOpenAIClient(OpenAI):
    """An `OpenAI` that knows which model it is for."""

    model_name: str = ""

    def copy(self, **options: Any) -> Self:
        """The SDK's `copy`; a copy is for the same model."""
        clone = super().copy(**options)
        clone.model_name = self.model_name
        return clone

    with_options = copy


def open_client(
    config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum = LLMFrameworkEnum.OPENAI_SYNC
) -> BlockingOpenAIClient:
    """A client to be closed by whoever opens it (`with`); its calls are noted as the framework's."""
    tap = open_tap(config, llm_name=llm_name, framework=framework)
    client = BlockingOpenAIClient(
        api_key=api_key(config, llm_name=llm_name),
        base_url=config.base_url,
        max_retries=config.max_retries,
        timeout=config.timeout,
        http_client=CapturingClient(tap),
    )
    client.model_name = config.model_name
    return client
