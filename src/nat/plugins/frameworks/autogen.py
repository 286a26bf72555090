"""AutoGen: its OpenAI model client on a recorded HTTP client, and functions as its tools."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from autogen_core import CancellationToken
from autogen_core.models import ModelFamily, ModelInfo
from autogen_core.tools import BaseTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import connection, open_tap, recorded_http
from nat.plugins.llms.openai import OpenAIModelConfig

ALL_CAPABILITIES = ModelInfo(
    vision=True,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family=ModelFamily.UNKNOWN,
    multiple_system_messages=True,
)
"""AutoGen refuses unsupported features and knows only OpenAI's models; for others the server decides."""


@asynccontextmanager
async def open_model(
    config: OpenAIModelConfig, *, llm_name: str | None
) -> AsyncGenerator[OpenAIChatCompletionClient, None]:
    """A client that is closed with the block.

    `base_url` is passed even if it is None; otherwise AutoGen chooses another company's by the model's name.
    """
    tap = open_tap(config, llm_name=llm_name, framework=LLMFrameworkEnum.AUTOGEN)
    options: dict[str, Any] = {
        "model": config.model_name,
        **connection(config, llm_name=llm_name),
        "http_client": recorded_http(config, tap),
    }
    try:
        client = OpenAIChatCompletionClient(**options)
    except ValueError:  # AutoGen does not know the model
        client = OpenAIChatCompletionClient(model_info=ALL_CAPABILITIES, **options)
    try:
        yield client
    finally:
        await client.close()


class FunctionAsTool(BaseTool[BaseModel, Any]):
    """A tool with the function's schema; AutoGen passes exceptions to the model as the result."""

    def __init__(self, tool: ToolFunction) -> None:
        super().__init__(args_type=tool.schema, return_type=str, name=tool.name, description=tool.description)
        self._tool = tool

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> str:
        return as_text(await self._tool.call(args.model_dump(exclude_unset=True, by_alias=True)))


def as_tool(tool: ToolFunction) -> FunctionAsTool:
    """A tool for `AssistantAgent(tools=…)` and for a `StaticWorkbench`."""
    return FunctionAsTool(tool)
