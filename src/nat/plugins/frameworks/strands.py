"""Strands: its OpenAI model on a recorded client, and functions as its tools."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from strands.models.openai import OpenAIModel
from strands.tools import PythonAgentTool
from strands.types.tools import AgentTool, ToolResult, ToolSpec, ToolUse

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIModel, None]:
    """A model for `Agent(model=…)`; it streams, as Strands' model does unless `update_config(stream=False)`.

    Strands never closes a given client. Its agents may run on other loops, which the client supports.
    """
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.STRANDS) as client:
        yield OpenAIModel(client=client, model_id=config.model_name)


def as_tool(tool: ToolFunction) -> AgentTool:
    """A tool for `Agent(tools=[…])`; Strands passes exceptions to the model."""

    async def call(tool_use: ToolUse, **_state: Any) -> ToolResult:
        text = as_text(await tool.call(tool_use["input"]))
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

    spec: ToolSpec = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"json": tool.parameters},
    }
    return PythonAgentTool(tool.name, spec, call)
