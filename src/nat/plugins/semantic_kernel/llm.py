"""Semantic Kernel's chat service on a recorded client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIChatCompletion, None]:
    """A service whose client is closed with the block; its id is the LLM's name, so that a kernel can hold several."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.SEMANTIC_KERNEL) as client:
        yield OpenAIChatCompletion(ai_model_id=config.model_name, service_id=llm_name, async_client=client)
