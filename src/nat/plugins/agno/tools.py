"""A function as Agno's."""

from typing import Any

from agno.tools import Function

from nat.builder.tool import ToolFunction, as_text


class FunctionOfOurs(Function):
    """For `agent.arun`; its `blocking` twin is for `agent.run`, which takes no async function."""

    blocking: Function


def as_tool(tool: ToolFunction) -> FunctionOfOurs:
    """A function with its own schema; what it raises, Agno gives to the model as the result."""

    async def call(**arguments: Any) -> str:
        return as_text(await tool.call(arguments))

    def call_blocking(**arguments: Any) -> str:
        return as_text(tool.call_blocking(arguments))

    said = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "skip_entrypoint_processing": True,
    }
    return FunctionOfOurs(**said, entrypoint=call, blocking=Function(**said, entrypoint=call_blocking))
