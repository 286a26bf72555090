"""LangChain's chat model and tool, which LangGraph takes as well; LangChain is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.LANGCHAIN)
async def langchain_client(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """A ChatOpenAI, for `ainvoke` and `invoke`."""
    with needs_extra(LLMFrameworkEnum.LANGCHAIN):
        from nat.plugins.langchain.llm import open_chat_model  # noqa: PLC0415 - an optional framework
    async with open_chat_model(config, llm_name=builder.llm_name) as model:
        yield model


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.LANGCHAIN)
def langchain_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a StructuredTool."""
    with needs_extra(LLMFrameworkEnum.LANGCHAIN):
        from nat.plugins.langchain.tools import as_structured_tool  # noqa: PLC0415 - an optional framework
    return as_structured_tool(ToolFunction(name, fn))
