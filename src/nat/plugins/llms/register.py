"""The OpenAI SDK's client for agents that use it, and functions as its tools."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tools import OpenAITool
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.OPENAI)
async def openai_client(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An AsyncOpenAI with the model's name as `model_name`."""
    from nat.plugins.llms.client import open_client  # noqa: PLC0415 - the SDK takes a second to import

    async with open_client(config, llm_name=builder.llm_name) as client:
        yield client


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.OPENAI)
def openai_tool(name: str, fn: Function, _builder: Builder) -> OpenAITool:
    """A function to put into `tools=[…]`."""
    return OpenAITool(ToolFunction(name, fn))
