"""The OpenAI Agents SDK's model on a recorded client, by chat completions."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agents import OpenAIChatCompletionsModel

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig

NO_TRACING = "OPENAI_AGENTS_DISABLE_TRACING"


@asynccontextmanager
async def open_model(
    config: OpenAIModelConfig, *, llm_name: str | None
) -> AsyncGenerator[OpenAIChatCompletionsModel, None]:
    """A model whose client is closed with the block.

    The SDK sends traces of every run to OpenAI by default; here it sends them only to who asks for it, by this
    variable or by `set_tracing_disabled(False)`.
    """
    os.environ.setdefault(NO_TRACING, "true")
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.OPENAI_AGENTS) as client:
        yield OpenAIChatCompletionsModel(model=config.model_name, openai_client=client)
