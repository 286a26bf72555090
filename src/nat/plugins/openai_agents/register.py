"""The OpenAI Agents SDK's model and tool, registered; the framework is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.OPENAI_AGENTS)
async def openai_agents_model(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAIChatCompletionsModel, for `Agent(model=…)`."""
    with needs_extra("openai_agents"):
        from nat.plugins.openai_agents.llm import open_model  # noqa: PLC0415 - an optional framework

    async with open_model(config, llm_name=builder.llm_name) as model:
        yield model


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.OPENAI_AGENTS)
def openai_agents_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a FunctionTool."""
    with needs_extra("openai_agents"):
        from nat.plugins.openai_agents.tools import as_tool  # noqa: PLC0415 - an optional framework

    return as_tool(ToolFunction(name, fn))
