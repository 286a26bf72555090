"""LlamaIndex: its OpenAI LLM on two recorded clients, one async and one blocking; and functions as its tools."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client, open_sync_client
from nat.plugins.llms.openai import OpenAIModelConfig

CONTEXT_WINDOW = 1_000_000
"""LlamaIndex's memory silently drops messages beyond it; a server reports a prompt that is too long."""


class RecordedOpenAILike(OpenAILike):
    """An OpenAILike that sends no temperature unless one is set."""

    temperature: float | None = None
    """LlamaIndex sends 0.1 by default; a policy is trained at its sampling temperature."""

    def _get_model_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """The fields of a request besides its messages."""
        fields: dict[str, Any] = super()._get_model_kwargs(**kwargs)
        if fields["temperature"] is None:
            del fields["temperature"]
        return fields


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[RecordedOpenAILike, None]:
    """An LLM for chats with tools; its clients retry, so LlamaIndex's own retries are off."""
    framework = LLMFrameworkEnum.LLAMA_INDEX
    with open_sync_client(config, llm_name=llm_name, framework=framework) as client:
        async with open_client(config, llm_name=llm_name, framework=framework) as async_client:
            yield RecordedOpenAILike(
                model=config.model_name,
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                context_window=CONTEXT_WINDOW,
                is_chat_model=True,
                is_function_calling_model=True,
                max_retries=0,
                timeout=config.timeout,
                api_base=config.server_url,
                api_key=client.api_key,
                openai_client=client,
                async_openai_client=async_client,
            )


def as_tool(tool: ToolFunction) -> FunctionTool:
    """A tool with the function's schema; LlamaIndex passes exceptions to the model as the result."""

    async def call(**arguments: Any) -> str:
        return as_text(await tool.call(arguments))

    def call_blocking(**arguments: Any) -> str:
        return as_text(tool.call_blocking(arguments))

    return FunctionTool.from_defaults(
        fn=call_blocking,
        async_fn=call,
        name=tool.name,
        description=tool.description,
        fn_schema=tool.schema,
    )
