"""Agno's model on two recorded clients: one for `arun`, one for `run`."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from agno.models.openai.like import OpenAILike
from openai import AsyncOpenAI, OpenAI

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_client as open_async_client
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.openai_sync.llm import open_client as open_sync_client

TELEMETRY = "AGNO_TELEMETRY"


@dataclass(frozen=True)
class Clients:
    """Both clients; a copy is the same two, since Agno copies models without their connections."""

    awaited: AsyncOpenAI
    blocking: OpenAI

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self


@dataclass
class RecordedModel(OpenAILike):
    """An OpenAILike that makes no clients of its own: a copied model's and a closed one's would go unrecorded."""

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

    Agno reports every run to its makers by default; here only if this variable says so.
    """
    os.environ.setdefault(TELEMETRY, "false")
    framework = LLMFrameworkEnum.AGNO
    with open_sync_client(config, llm_name=llm_name, framework=framework) as blocking:
        async with open_async_client(config, llm_name=llm_name, framework=framework) as awaited:
            yield RecordedModel(id=config.model_name, clients=Clients(awaited, blocking))
