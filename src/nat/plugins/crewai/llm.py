"""CrewAI's own OpenAI LLM on two recorded clients: one for code that blocks, one for code that waits."""

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

# CrewAI reads them when it is imported and when a crew starts: else it reports runs to its makers, and asks to.
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai.llms.providers.openai.completion import OpenAICompletion
from pydantic import PrivateAttr

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import OpenAIClient
from nat.plugins.llms.client import open_client as open_async_client
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.openai_sync.llm import BlockingOpenAIClient
from nat.plugins.openai_sync.llm import open_client as open_sync_client

_THREADS = 1000
"""As many as a whole epoch may need at once; they are started when they are needed."""


class RecordedLLM(OpenAICompletion):
    """An OpenAICompletion whose clients are given to it; copies have the same ones."""

    _blocking: BlockingOpenAIClient = PrivateAttr()
    _waiting: OpenAIClient = PrivateAttr()

    def __init__(self, blocking: BlockingOpenAIClient, waiting: OpenAIClient, **fields: Any) -> None:
        super().__init__(**fields)
        self._blocking = blocking
        self._waiting = waiting

    def _get_sync_client(self) -> BlockingOpenAIClient:
        """Where CrewAI takes the client of a blocking call from."""
        return self._blocking

    def _get_async_client(self) -> OpenAIClient:
        """Where CrewAI takes the client of a call that waits from."""
        return self._waiting

    def supports_multimodal(self) -> bool:
        """True: CrewAI knows OpenAI's models by name, and what a server of one's own can see, the server says."""
        return True


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[RecordedLLM, None]:
    """An LLM for `Agent(llm=…)`.

    CrewAI's awaited agents block a thread of the loop's pool in each call of an LLM or a tool. asyncio gives it a few
    threads; with those, tools that are agents themselves would hold all of them and wait for one more.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "nat-crewai"))
    framework = LLMFrameworkEnum.CREWAI
    with open_sync_client(config, llm_name=llm_name, framework=framework) as blocking:
        async with open_async_client(config, llm_name=llm_name, framework=framework) as waiting:
            yield RecordedLLM(
                blocking,
                waiting,
                model=config.model_name,
                api_key=blocking.api_key,
                base_url=str(blocking.base_url),
            )
