"""A function as a tool of the OpenAI Agents SDK."""

import json

from agents import FunctionTool
from agents.tool_context import ToolContext

from nat.builder.tool import ToolFunction, as_text
from nat.errors import NatError


def as_tool(tool: ToolFunction) -> FunctionTool:
    """A tool with the function's own schema, which strict mode would change."""

    async def invoke(_context: ToolContext, arguments: str) -> str:
        """What the function raises is told to the model; to raise here would end the whole run."""
        try:
            return as_text(await tool.call(json.loads(arguments or "{}")))
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of one tool call: its failure is an answer
            return f"An error occurred while running the tool. Please try again. Error: {type(error).__name__}: {error}"

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
