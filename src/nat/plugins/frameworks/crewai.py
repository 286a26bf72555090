"""CrewAI: its OpenAI LLM on two recorded clients, one blocking and one async; and functions as its tools."""

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

# CrewAI reads these at import and when a crew starts. Without them it sends telemetry, and prompts for traces.
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.tools import BaseTool
from pydantic import PrivateAttr

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import OpenAIClient, SyncOpenAIClient, open_client, open_sync_client
from nat.plugins.llms.openai import OpenAIModelConfig

_THREADS = 1000
"""Enough for a whole epoch at once; threads are started on demand."""


class RecordedCompletion(OpenAICompletion):
    """An OpenAICompletion with given clients; copies share them."""

    _blocking: SyncOpenAIClient = PrivateAttr()
    _waiting: OpenAIClient = PrivateAttr()

    def __init__(self, blocking: SyncOpenAIClient, waiting: OpenAIClient, **fields: Any) -> None:
        super().__init__(**fields)
        self._blocking = blocking
        self._waiting = waiting

    def _get_sync_client(self) -> SyncOpenAIClient:
        """The client of CrewAI's blocking calls."""
        return self._blocking

    def _get_async_client(self) -> OpenAIClient:
        """The client of CrewAI's async calls."""
        return self._waiting

    def supports_multimodal(self) -> bool:
        """True: CrewAI decides by OpenAI's model names; for other models the server decides."""
        return True


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[RecordedCompletion, None]:
    """An LLM for `Agent(llm=…)`.

    CrewAI's async agents block a thread of the loop's pool during each call of an LLM or a tool. With asyncio's few
    threads, tools that are agents themselves would take all of them and wait for another one.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "nat-crewai"))
    framework = LLMFrameworkEnum.CREWAI
    with open_sync_client(config, llm_name=llm_name, framework=framework) as blocking:
        async with open_client(config, llm_name=llm_name, framework=framework) as waiting:
            yield RecordedCompletion(
                blocking,
                waiting,
                model=config.model_name,
                api_key=blocking.api_key,
                base_url=str(blocking.base_url),
            )


class FunctionTool(BaseTool):
    """Runs on the builder's loop, from any thread or loop; CrewAI passes exceptions to the model."""

    _tool: ToolFunction = PrivateAttr()

    def __init__(self, tool: ToolFunction) -> None:
        super().__init__(name=tool.name, description=tool.description, args_schema=tool.schema)
        self._tool = tool

    def _run(self, **arguments: Any) -> str:
        """Call the function, blocking the thread."""
        return as_text(self._tool.call_blocking(arguments))

    async def _arun(self, **arguments: Any) -> str:
        return as_text(await self._tool.call(arguments))


def as_tool(tool: ToolFunction) -> BaseTool:
    """A tool for `Agent(tools=[…])`."""
    return FunctionTool(tool)
