"""A function as AutoGen's tool."""

from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool
from pydantic import BaseModel

from nat.builder.tool import ToolFunction, as_text


class FunctionAsTool(BaseTool[BaseModel, Any]):
    """A tool with the function's own schema; what it raises, AutoGen's agents give to the model as the result."""

    def __init__(self, tool: ToolFunction) -> None:
        super().__init__(args_type=tool.schema, return_type=str, name=tool.name, description=tool.description)
        self._tool = tool

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> str:  # noqa: ARG002 - AutoGen's
        return as_text(await self._tool.call(args.model_dump(exclude_unset=True, by_alias=True)))


def as_tool(tool: ToolFunction) -> FunctionAsTool:
    """A tool for `AssistantAgent(tools=…)` and for a `StaticWorkbench`."""
    return FunctionAsTool(tool)
