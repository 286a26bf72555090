"""LangChain's ChatOpenAI over our HTTP clients.

It gets no sampling parameters: those that an agent sets itself are sent, the others are filled in on the wire.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_openai import ChatOpenAI

from nat.capture.http import CapturingAsyncClient, CapturingClient
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import connection
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tap import open_tap


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncIterator[ChatOpenAI]:
    """A chat model whose connections are closed at the end of the block."""
    tap = open_tap(config, llm_name=llm_name, framework=LLMFrameworkEnum.LANGCHAIN)
    async with CapturingAsyncClient(tap) as http_async_client:
        with CapturingClient(tap) as http_client:
            yield ChatOpenAI(
                model=config.model_name,
                **connection(config, llm_name=llm_name),
                http_client=http_client,
                http_async_client=http_async_client,
                use_responses_api=False,  # that route does not tell which tokens were sampled
            )
