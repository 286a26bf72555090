"""Pydantic AI's model on a recorded client, by chat completions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIChatModel, None]:
    """A model whose client is closed with the block."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.PYDANTIC_AI) as client:
        yield OpenAIChatModel(config.model_name, provider=OpenAIProvider(openai_client=client))
