"""A function as CrewAI's tool."""

from typing import Any

from crewai.tools import BaseTool
from pydantic import PrivateAttr

from nat.builder.tool import ToolFunction, as_text


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
