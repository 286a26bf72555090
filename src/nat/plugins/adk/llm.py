"""ADK's LiteLlm on a recorded client: what an agent says in production is what it says in training.

LiteLLM words the requests, as it does for ADK without us; they leave through the OpenAI SDK's client, which LiteLLM
takes ready-made.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

# LiteLLM reads these when it is imported: else it asks the network for prices, takes in the folder's `.env`, and tells
# of every call on stdout.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
os.environ.setdefault("LITELLM_LOG", "WARNING")

import litellm
from google.adk.models.lite_llm import LiteLlm, LiteLLMClient

from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import OpenAIClient, open_client
from nat.plugins.llms.openai import OpenAIModelConfig

litellm.disable_hf_tokenizer_download = True  # it counts tokens for its logs, and fetches tokenizers to do so
litellm.suppress_debug_info = True  # it asks for feedback on stdout when a call fails; the error says what there is


class RecordedClient(LiteLLMClient):
    """The call that LiteLlm makes, on a given client instead of one of LiteLLM's own."""

    def __init__(self, client: OpenAIClient, config: OpenAIModelConfig) -> None:
        self._client = client
        self._defaults = {"max_retries": config.max_retries, "timeout": config.timeout}

    async def acompletion(self, model: Any, messages: Any, tools: Any, **fields: Any) -> Any:
        """LiteLLM's answer, or its stream."""
        return await super().acompletion(model, messages, tools, client=self._client, **{**self._defaults, **fields})


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[LiteLlm, None]:
    """A model for ADK's agents; `openai/` says to LiteLLM how to speak, the rest is the server's own name."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.ADK) as client:
        yield LiteLlm(model=f"openai/{config.model_name}", llm_client=RecordedClient(client, config))
