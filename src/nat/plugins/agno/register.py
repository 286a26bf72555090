"""Agno's model and function, registered; the framework is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.AGNO)
async def agno_model(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAILike, for `Agent(model=…)`."""
    with needs_extra("agno"):
        from nat.plugins.agno.llm import open_model  # noqa: PLC0415 - an optional framework

    async with open_model(config, llm_name=builder.llm_name) as model:
        yield model


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.AGNO)
def agno_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a Function of Agno."""
    with needs_extra("agno"):
        from nat.plugins.agno.tools import as_tool  # noqa: PLC0415 - an optional framework

    return as_tool(ToolFunction(name, fn))
