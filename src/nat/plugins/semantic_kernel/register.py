"""Semantic Kernel's chat service and function, registered; the framework is imported when one is asked for."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.framework import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=LLMFrameworkEnum.SEMANTIC_KERNEL)
async def semantic_kernel_service(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An OpenAIChatCompletion, for `kernel.add_service` or `ChatCompletionAgent(service=…)`."""
    with needs_extra("semantic_kernel"):
        from nat.plugins.semantic_kernel.llm import open_service  # noqa: PLC0415 - an optional framework

    async with open_service(config, llm_name=builder.llm_name) as service:
        yield service


@register_tool_wrapper(wrapper_type=LLMFrameworkEnum.SEMANTIC_KERNEL)
def semantic_kernel_tool(name: str, fn: Function, _builder: Builder) -> Any:
    """A function as a KernelFunction."""
    with needs_extra("semantic_kernel"):
        from nat.plugins.semantic_kernel.tools import as_tool  # noqa: PLC0415 - an optional framework

    return as_tool(ToolFunction(name, fn))
