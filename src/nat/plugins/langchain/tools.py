"""A function as LangChain's StructuredTool.

LangChain tells the model about an error only if it is a ToolException; every other one ends the agent. So what the
function raises becomes one, but for errors of the harness's own, on which no model can act.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.tools import StructuredTool, ToolException

from nat.builder.tool import ToolFunction
from nat.errors import NatError


def as_tool(tool: ToolFunction) -> StructuredTool:
    """A tool for `ainvoke` and, from threads, `invoke`."""

    async def call(**arguments: Any) -> Any:
        with _telling_the_model():
            return await tool.call(arguments)

    def call_blocking(**arguments: Any) -> Any:
        with _telling_the_model():
            return tool.call_blocking(arguments)

    return StructuredTool.from_function(
        func=call_blocking,
        coroutine=call,
        name=tool.name,
        description=tool.description,
        args_schema=tool.schema,
        handle_tool_error=True,
        handle_validation_error=True,
    )


@contextmanager
def _telling_the_model() -> Iterator[None]:
    try:
        yield
    except NatError:
        raise
    except Exception as error:
        raise ToolException(f"{type(error).__name__}: {error}") from error
