"""The OpenAI SDK's client for agents that block, and functions as its tools."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tools import BlockingOpenAITool
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.OPENAI_SYNC)
async def openai_sync_client(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAI with the model's name as `model_name`."""
    from nat.plugins.openai_sync.llm import open_client  # noqa: PLC0415 - the SDK takes a second to import

    with open_client(config, llm_name=builder.llm_name) as client:
        yield client


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.OPENAI_SYNC)
def openai_sync_tool(name: str, fn: Function, _builder: Builder) -> BlockingOpenAITool:
    """A function to put into `tools=[…]`."""
    return BlockingOpenAITool(ToolFunction(name, fn))
