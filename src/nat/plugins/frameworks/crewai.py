"""CrewAI: its OpenAI LLM on two recorded clients, one blocking and one async; and functions as its tools."""

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
from crewai.tools import BaseTool
from pydantic import PrivateAttr

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import OpenAIClient, SyncOpenAIClient, open_client, open_sync_client
from nat.plugins.llms.openai import OpenAIModelConfig

_THREADS = 1000
"""As many as a whole epoch may need at once; they are started when they are needed."""


class RecordedLLM(OpenAICompletion):
    """An OpenAICompletion whose clients are given to it; copies have the same ones."""

    _blocking: SyncOpenAIClient = PrivateAttr()
    _waiting: OpenAIClient = PrivateAttr()

    def __init__(self, blocking: SyncOpenAIClient, waiting: OpenAIClient, **fields: Any) -> None:
        super().__init__(**fields)
        self._blocking = blocking
        self._waiting = waiting

    def _get_sync_client(self) -> SyncOpenAIClient:
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
        async with open_client(config, llm_name=llm_name, framework=framework) as waiting:
            yield RecordedLLM(
                blocking,
                waiting,
                model=config.model_name,
                api_key=blocking.api_key,
                base_url=str(blocking.base_url),
            )


class FunctionTool(BaseTool):
    """Runs where the function's builder is, whichever thread or loop CrewAI calls it from.

    What the function raises, CrewAI tells the model.
    """

    _tool: ToolFunction = PrivateAttr()

    def __init__(self, tool: ToolFunction) -> None:
        super().__init__(name=tool.name, description=tool.description, args_schema=tool.schema)
        self._tool = tool

    def _run(self, **arguments: Any) -> str:
        """Blocks its thread meanwhile."""
        return as_text(self._tool.call_blocking(arguments))

    async def _arun(self, **arguments: Any) -> str:
        return as_text(await self._tool.call(arguments))


def as_tool(tool: ToolFunction) -> BaseTool:
    """A tool for `Agent(tools=[…])`."""
    return FunctionTool(tool)
