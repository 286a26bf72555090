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
    """A service whose client is closed with the block; the LLM's name is its id, so that a kernel can have several."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.SEMANTIC_KERNEL) as client:
        yield OpenAIChatCompletion(ai_model_id=config.model_name, service_id=llm_name, async_client=client)


class HarnessFunction(KernelFunctionFromMethod):
    """A kernel function with the function's schema, which gets the model's arguments only.

    Semantic Kernel would fill arguments named `kernel`, `service` or `arguments` with its own objects.
    """

    def __init__(self, tool: ToolFunction) -> None:
        @kernel_function(name=tool.name, description=tool.description)
        async def call(**arguments: Any) -> str:
            return as_text(await tool.call(arguments))

        super().__init__(method=call, parameters=_parameters(inlined(tool.parameters)))

    def gather_function_parameters(self, context: FunctionInvocationContext) -> dict[str, Any]:
        """The model's arguments; the function reports missing ones."""
        given = context.arguments
        return {each.name: given[each.name] for each in self.parameters if each.name is not None and each.name in given}


def as_tool(tool: ToolFunction) -> HarnessFunction:
    """A function for a plugin; the kernel passes exceptions to the model as the result."""
    return HarnessFunction(tool)


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
