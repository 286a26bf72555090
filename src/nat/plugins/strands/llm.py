"""Strands' OpenAI model on a recorded client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from strands.models.openai import OpenAIModel

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIModel, None]:
    """A model for `Agent(model=…)`; it streams, as Strands' model does unless `update_config(stream=False)`.

    Strands closes no client that it is given, and its agents may run in loops of their own: the client knows.
    """
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.STRANDS) as client:
        yield OpenAIModel(client=client, model_id=config.model_name)
