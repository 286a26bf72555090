"""Agno: its OpenAI model on two recorded clients, one for `arun` and one for `run`; and functions as its tools."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from agno.models.openai.like import OpenAILike
from agno.tools import Function
from openai import AsyncOpenAI, OpenAI

from nat.builder.tool import ToolFunction, as_text
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client, open_sync_client
from nat.plugins.llms.openai import OpenAIModelConfig

TELEMETRY = "AGNO_TELEMETRY"


@dataclass(frozen=True)
class Clients:
    """Both clients; a deep copy keeps them, since Agno copies models."""

    awaited: AsyncOpenAI
    blocking: OpenAI

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self


@dataclass
class RecordedModel(OpenAILike):
    """An OpenAILike that never creates clients, which would not be recorded."""

    clients: Clients | None = field(default=None, repr=False)

    def get_client(self) -> OpenAI:
        assert self.clients is not None, "open_model gives them"
        return self.clients.blocking

    def get_async_client(self) -> AsyncOpenAI:
        assert self.clients is not None, "open_model gives them"
        return self.clients.awaited


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[RecordedModel, None]:
    """A model whose clients are closed with the block.

    Agno sends telemetry of every run by default; here only if AGNO_TELEMETRY is true.
    """
    os.environ.setdefault(TELEMETRY, "false")
    framework = LLMFrameworkEnum.AGNO
    with open_sync_client(config, llm_name=llm_name, framework=framework) as blocking:
        async with open_client(config, llm_name=llm_name, framework=framework) as awaited:
            yield RecordedModel(id=config.model_name, clients=Clients(awaited, blocking))


class AgnoFunction(Function):
    """For `agent.arun`; `blocking` is for `agent.run`, which accepts no async function."""

    blocking: Function


def as_tool(tool: ToolFunction) -> AgnoFunction:
    """A tool with the function's schema; Agno passes exceptions to the model as the result."""

    async def call(**arguments: Any) -> str:
        return as_text(await tool.call(arguments))

    def call_blocking(**arguments: Any) -> str:
        return as_text(tool.call_blocking(arguments))

    fields = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "skip_entrypoint_processing": True,
    }
    return AgnoFunction(**fields, entrypoint=call, blocking=Function(**fields, entrypoint=call_blocking))
