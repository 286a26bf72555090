"""A function as Strands' tool."""

from typing import Any

from strands.tools import PythonAgentTool
from strands.types.tools import AgentTool, ToolResult, ToolSpec, ToolUse

from nat.builder.tool import ToolFunction, as_text


def as_tool(tool: ToolFunction) -> AgentTool:
    """A tool for `Agent(tools=[…])`; what the function raises, Strands tells the model."""

    async def call(tool_use: ToolUse, **_state: Any) -> ToolResult:
        text = as_text(await tool.call(tool_use["input"]))
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

    spec: ToolSpec = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"json": tool.parameters},
    }
    return PythonAgentTool(tool.name, spec, call)
