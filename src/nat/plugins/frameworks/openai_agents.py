"""OpenAI Agents SDK: its chat completions model on a recorded client, and functions as its tools."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agents import FunctionTool, OpenAIChatCompletionsModel
from agents.tool_context import ToolContext

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import NatError
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig

NO_TRACING = "OPENAI_AGENTS_DISABLE_TRACING"


@asynccontextmanager
async def open_model(
    config: OpenAIModelConfig, *, llm_name: str | None
) -> AsyncGenerator[OpenAIChatCompletionsModel, None]:
    """A model whose client is closed with the block.

    The SDK sends traces of every run to OpenAI by default. Here tracing is off unless this variable or
    `set_tracing_disabled(False)` turns it on.
    """
    os.environ.setdefault(NO_TRACING, "true")
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.OPENAI_AGENTS) as client:
        yield OpenAIChatCompletionsModel(model=config.model_name, openai_client=client)


def as_tool(tool: ToolFunction) -> FunctionTool:
    """A tool with the function's schema, which strict mode would change."""

    async def invoke(_context: ToolContext, arguments: str) -> str:
        """The result, or the error as text for the model; an exception would end the run."""
        try:
            return as_text(await tool.call(json.loads(arguments or "{}")))
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - the model gets the error
            return f"An error occurred while running the tool. Please try again. Error: {type(error).__name__}: {error}"

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
