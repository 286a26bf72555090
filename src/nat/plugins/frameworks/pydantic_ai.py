"""Pydantic AI: its chat completions model on a recorded client, and functions as its tools."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import NatError
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIChatModel, None]:
    """A model whose client is closed with the block."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.PYDANTIC_AI) as client:
        yield OpenAIChatModel(config.model_name, provider=OpenAIProvider(openai_client=client))


_NOT_FOR_THE_MODEL = (NatError, ApprovalRequired, CallDeferred, ModelRetry, ToolFailed)
"""A NatError ends the run; a function raises the others on purpose, to control the framework."""


def as_tool(tool: ToolFunction) -> Tool[Any]:
    """A tool with the function's schema; an exception becomes a ToolFailed, which the model gets as the result.

    Other exceptions would end the run, and so would a second `ModelRetry`.
    """

    async def call(**arguments: Any) -> str:
        try:
            return as_text(await tool.call(arguments))
        except _NOT_FOR_THE_MODEL:
            raise
        except Exception as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from error

    return Tool.from_schema(call, name=tool.name, description=tool.description, json_schema=tool.parameters)
