"""Google ADK's model and tool, registered; the framework is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.ADK)
async def adk_model(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """A LiteLlm, for `LlmAgent(model=…)`."""
    with needs_extra("adk"):
        from nat.plugins.adk.llm import open_model  # noqa: PLC0415 - an optional framework

    async with open_model(config, llm_name=builder.llm_name) as model:
        yield model


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.ADK)
def adk_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a BaseTool, for `LlmAgent(tools=[…])`."""
    with needs_extra("adk"):
        from nat.plugins.adk.tools import as_tool  # noqa: PLC0415 - an optional framework

    return as_tool(ToolFunction(name, fn))
