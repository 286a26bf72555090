"""Register the clients that need no framework: the OpenAI SDK, async and sync, and the gateway's upstream."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.gateway import WRAPPER_TYPE
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tools import OpenAITool, SyncOpenAITool
from nat.registry.decorators import register_llm_client, register_tool_wrapper


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
    from nat.plugins.llms.upstream import open_upstream

    async with open_upstream(config, llm_name=builder.llm_name) as upstream:
        yield upstream
