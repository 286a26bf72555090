"""The clients that need no framework: the OpenAI SDK, async and sync, and the gateway's upstream.

The SDK defines a format for tools but does not run them. The model gets a function's exception as the answer; a
NatError is raised, since the model cannot act on it.
"""

import json
from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import NatError
from nat.gateway import WRAPPER_TYPE
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper

Message = dict[str, Any]


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

    async def answer(self, call: Any) -> Message:
        """The tool message for one of an answer's `tool_calls`; the model sees what the function raises."""
        try:
            return _message(call, as_text(await self._tool.call(json.loads(call.function.arguments))))
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of one tool call: its failure is an answer
            return _message(call, _error_text(error))


class SyncOpenAITool(RequestTool):
    """A tool that answers the model's calls, for blocking code."""

    def answer(self, call: Any) -> Message:
        """The tool message for one of an answer's `tool_calls`; the model sees what the function raises."""
        try:
            return _message(call, as_text(self._tool.call_blocking(json.loads(call.function.arguments))))
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return _message(call, _error_text(error))


def _message(call: Any, content: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def _error_text(error: Exception) -> str:
    return f"Error: {type(error).__name__}: {error}"


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.OPENAI)
async def openai_client(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An AsyncOpenAI with the model's name in `model_name`."""
    from nat.plugins.llms.client import open_client

    async with open_client(config, llm_name=builder.llm_name) as client:
        yield client


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.OPENAI)
def openai_tool(name: str, fn: Function, _builder: Builder) -> OpenAITool:
    """A function for `tools=[…]` of a request."""
    return OpenAITool(ToolFunction(name, fn))


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.OPENAI_SYNC)
async def openai_sync_client(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAI with the model's name in `model_name`."""
    from nat.plugins.llms.client import open_sync_client

    with open_sync_client(config, llm_name=builder.llm_name) as client:
        yield client


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.OPENAI_SYNC)
def openai_sync_tool(name: str, fn: Function, _builder: Builder) -> SyncOpenAITool:
    """A function for `tools=[…]` of a request."""
    return SyncOpenAITool(ToolFunction(name, fn))


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=WRAPPER_TYPE)
async def gateway_upstream(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An Upstream, for a `nat.gateway.access.RolloutAccess`."""
    from nat.plugins.llms.client import open_upstream

    async with open_upstream(config, llm_name=builder.llm_name) as upstream:
        yield upstream
