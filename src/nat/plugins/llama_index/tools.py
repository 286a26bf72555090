"""A function as LlamaIndex's tool."""

from typing import Any

from llama_index.core.tools import FunctionTool

from nat.builder.tool import ToolFunction, as_text


def as_tool(tool: ToolFunction) -> FunctionTool:
    """A tool with the function's own schema; what it raises, LlamaIndex's agents give to the model as the result."""

    async def call(**arguments: Any) -> str:
        return as_text(await tool.call(arguments))

    def call_blocking(**arguments: Any) -> str:
        return as_text(tool.call_blocking(arguments))

    return FunctionTool.from_defaults(
        fn=call_blocking,
        async_fn=call,
        name=tool.name,
        description=tool.description,
        fn_schema=tool.schema,
    )
