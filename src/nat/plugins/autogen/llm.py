"""AutoGen's model client on a recorded HTTP client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from nat.capture.http import CapturingAsyncClient
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import connection
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tap import open_tap

ABLE = ModelInfo(
    vision=True,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family=ModelFamily.UNKNOWN,
    multiple_system_messages=True,
)
"""AutoGen refuses what a model is said not to do, and knows OpenAI's models only; of others the server says it."""


@asynccontextmanager
async def open_model(
    config: OpenAIModelConfig, *, llm_name: str | None
) -> AsyncGenerator[OpenAIChatCompletionClient, None]:
    """A client that is closed with the block.

    `base_url` is given even where it is None: AutoGen would guess another company's from the model's name.
    """
    tap = open_tap(config, llm_name=llm_name, framework=LLMFrameworkEnum.AUTOGEN)
    options: dict[str, Any] = {
        "model": config.model_name,
        **connection(config, llm_name=llm_name),
        "http_client": CapturingAsyncClient(tap),
    }
    try:
        client = OpenAIChatCompletionClient(**options)
    except ValueError:  # a name that AutoGen does not know
        client = OpenAIChatCompletionClient(model_info=ABLE, **options)
    try:
        yield client
    finally:
        await client.close()
