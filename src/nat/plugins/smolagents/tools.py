"""A function as smolagents' tool."""

from typing import Any

from pydantic_core import to_jsonable_python
from smolagents import Tool

from nat.builder.tool import ToolFunction
from nat.plugins.smolagents.inputs import inputs_of


class FunctionTool(Tool):
    """Blocks its thread while the function runs where its builder is; what it raises, smolagents tells the model."""

    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, tool: ToolFunction) -> None:
        self.name = tool.name
        self.description = tool.description
        self.inputs = inputs_of(tool.parameters)
        self._tool = tool
        super().__init__()

    def forward(self, *values: Any, **arguments: Any) -> Any:
        """The result as plain data, which the code of a code agent can compute with."""
        named = dict(zip(self.inputs, values, strict=False)) | arguments
        return to_jsonable_python(self._tool.call_blocking(named), fallback=str)


def as_tool(tool: ToolFunction) -> Tool:
    """A tool for `ToolCallingAgent(tools=[…])` and `CodeAgent(tools=[…])`."""
    return FunctionTool(tool)
