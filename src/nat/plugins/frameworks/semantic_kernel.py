"""Semantic Kernel: its chat service on a recorded client, and functions as kernel functions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.filters import FunctionInvocationContext
from semantic_kernel.functions import (
    KernelFunctionFromMethod,
    KernelParameterMetadata,
    kernel_function,
)

from nat.builder.tool import ToolFunction, as_text, inlined
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIChatCompletion, None]:
    """A service whose client is closed with the block; its id is the LLM's name, so that a kernel can hold several."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.SEMANTIC_KERNEL) as client:
        yield OpenAIChatCompletion(ai_model_id=config.model_name, service_id=llm_name, async_client=client)


class FunctionOfOurs(KernelFunctionFromMethod):
    """A kernel function with the function's own schema, and with no arguments but the model's.

    Semantic Kernel puts objects of its own into arguments called `kernel`, `service` or `arguments`.
    """

    def __init__(self, tool: ToolFunction) -> None:
        @kernel_function(name=tool.name, description=tool.description)
        async def call(**arguments: Any) -> str:
            return as_text(await tool.call(arguments))

        super().__init__(method=call, parameters=_parameters(inlined(tool.parameters)))

    def gather_function_parameters(self, context: FunctionInvocationContext) -> dict[str, Any]:
        """The arguments that the model gave; the function itself says what is missing."""
        given = context.arguments
        return {each.name: given[each.name] for each in self.parameters if each.name is not None and each.name in given}


def as_tool(tool: ToolFunction) -> FunctionOfOurs:
    """A function to put into a plugin; what it raises, the kernel gives to the model as the result."""
    return FunctionOfOurs(tool)


def _parameters(schema: dict[str, Any]) -> list[KernelParameterMetadata]:
    return [
        KernelParameterMetadata(
            name=name,
            description=part.get("description"),
            default_value=part.get("default"),
            type=part.get("type"),
            is_required=name in schema.get("required", ()),
            schema_data=part,
        )
        for name, part in schema.get("properties", {}).items()
    ]
