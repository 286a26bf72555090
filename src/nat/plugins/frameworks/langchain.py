"""LangChain and LangGraph: ChatOpenAI on recorded HTTP clients, and functions as StructuredTools.

The model gets no sampling parameters: those that the agent sets are sent, the others are filled in on the wire.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from langchain_core.tools import StructuredTool, ToolException
from langchain_openai import ChatOpenAI

from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import NatError
from nat.plugins.llms.client import connection, open_tap, recorded_http, recorded_sync_http
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncIterator[ChatOpenAI]:
    """A chat model whose connections are closed at the end of the block."""
    tap = open_tap(config, llm_name=llm_name, framework=LLMFrameworkEnum.LANGCHAIN)
    async with recorded_http(config, tap) as http_async_client:
        with recorded_sync_http(config, tap) as http_client:
            yield ChatOpenAI(
                model=config.model_name,
                **connection(config, llm_name=llm_name),
                http_client=http_client,
                http_async_client=http_async_client,
                use_responses_api=False,  # that API does not report the sampled tokens
            )


def as_tool(tool: ToolFunction) -> StructuredTool:
    """A tool for `ainvoke` and, from threads, `invoke`."""

    async def call(**arguments: Any) -> Any:
        with _as_tool_exception():
            return await tool.call(arguments)

    def call_blocking(**arguments: Any) -> Any:
        with _as_tool_exception():
            return tool.call_blocking(arguments)

    return StructuredTool.from_function(
        func=call_blocking,
        coroutine=call,
        name=tool.name,
        description=tool.description,
        args_schema=tool.schema,
        handle_tool_error=True,
        handle_validation_error=True,
    )


@contextmanager
def _as_tool_exception() -> Iterator[None]:
    """Turn exceptions into ToolExceptions: LangChain passes these to the model, and others end the agent.

    A NatError is not turned into one, since the model cannot act on it.
    """
    try:
        yield
    except NatError:
        raise
    except Exception as error:
        raise ToolException(f"{type(error).__name__}: {error}") from error
