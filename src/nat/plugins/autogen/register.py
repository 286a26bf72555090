"""AutoGen's model client and tool, registered; the framework is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.AUTOGEN)
async def autogen_client(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAIChatCompletionClient, for `AssistantAgent(model_client=…)`."""
    with needs_extra("autogen"):
        from nat.plugins.autogen.llm import open_client  # noqa: PLC0415 - an optional framework

    async with open_client(config, llm_name=builder.llm_name) as client:
        yield client


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.AUTOGEN)
def autogen_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a BaseTool."""
    with needs_extra("autogen"):
        from nat.plugins.autogen.tools import as_tool  # noqa: PLC0415 - an optional framework

    return as_tool(ToolFunction(name, fn))
