"""Functions as tools of the OpenAI client, which defines a format for tools but does not run them.

The model gets a function's exception as the answer. A NatError is raised, since the model cannot act on it.
"""

import json
from typing import Any, Protocol

from nat.builder.tool import ToolFunction, as_text
from nat.errors import NatError

Message = dict[str, Any]


class SdkFunction(Protocol):
    """The `function` of a tool call, as the SDK gives it."""

    name: str
    arguments: str


class SdkToolCall(Protocol):
    """One of the `tool_calls` of an answer, as the SDK gives it."""

    id: str
    function: SdkFunction


class RequestTool(dict[str, Any]):
    """A tool for `tools=[…]` of a request."""

    def __init__(self, tool: ToolFunction) -> None:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        super().__init__(type="function", function=function)
        self._tool = tool

    @property
    def name(self) -> str:
        return self._tool.name


class OpenAITool(RequestTool):
    """A tool that answers the model's calls."""

    async def answer(self, call: SdkToolCall) -> Message:
        """The tool message for a call; the model sees what the function raises."""
        try:
            return _message(call, as_text(await self._tool.call(json.loads(call.function.arguments))))
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of one tool call: its failure is an answer
            return _message(call, _error_text(error))


class SyncOpenAITool(RequestTool):
    """A tool that answers the model's calls, for blocking code."""

    def answer(self, call: SdkToolCall) -> Message:
        """The tool message for a call; the model sees what the function raises."""
        try:
            return _message(call, as_text(self._tool.call_blocking(json.loads(call.function.arguments))))
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return _message(call, _error_text(error))


def _message(call: SdkToolCall, content: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def _error_text(error: Exception) -> str:
    return f"Error: {type(error).__name__}: {error}"
