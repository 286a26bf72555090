"""A function as ADK's tool."""

from typing import Any

from google.adk.tools import BaseTool, ToolContext
from google.genai.types import FunctionDeclaration
from pydantic_core import to_jsonable_python

from nat.builder.tool import ToolFunction
from nat.errors import NatError


class AdkTool(BaseTool):
    """A tool with the function's own schema."""

    def __init__(self, tool: ToolFunction) -> None:
        super().__init__(name=tool.name, description=tool.description or "")
        self._tool = tool

    def _get_declaration(self) -> FunctionDeclaration:
        """What ADK shows the model."""
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:  # noqa: ARG002 - ADK's own
        """The result, or what went wrong as ADK's own tools say it: an exception would end the whole agent."""
        try:
            return to_jsonable_python(await self._tool.call(args), fallback=str)
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of one tool call: the model is told
            return {"error": str(error)}


def as_tool(tool: ToolFunction) -> BaseTool:
    """A tool for `LlmAgent(tools=[…])`."""
    return AdkTool(tool)
