"""LlamaIndex's LLM and tool, registered; the framework is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.LLAMA_INDEX)
async def llama_index_llm(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAILike, which takes any model's name."""
    with needs_extra("llama_index"):
        from nat.plugins.llama_index.llm import open_llm  # noqa: PLC0415 - an optional framework

    async with open_llm(config, llm_name=builder.llm_name) as llm:
        yield llm


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.LLAMA_INDEX)
def llama_index_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a FunctionTool."""
    with needs_extra("llama_index"):
        from nat.plugins.llama_index.tools import as_tool  # noqa: PLC0415 - an optional framework

    return as_tool(ToolFunction(name, fn))
