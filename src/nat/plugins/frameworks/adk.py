"""Google ADK: LiteLlm on a recorded client, and functions as ADK tools.

LiteLLM builds the requests, as it does for ADK without us; they are sent through the OpenAI SDK's client.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

# LiteLLM reads these at import. Without them it downloads prices, reads the folder's `.env`, and prints every call to
# stdout.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
os.environ.setdefault("LITELLM_LOG", "WARNING")

import litellm
from google.adk.models.lite_llm import LiteLlm, LiteLLMClient
from google.adk.tools import BaseTool, ToolContext
from google.genai.types import FunctionDeclaration
from pydantic_core import to_jsonable_python

from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import NatError
from nat.plugins.llms.client import OpenAIClient, open_client
from nat.plugins.llms.openai import OpenAIModelConfig

litellm.disable_hf_tokenizer_download = True  # it downloads tokenizers to count tokens for its logs
litellm.suppress_debug_info = True  # it prints a request for feedback when a call fails


class RecordedClient(LiteLLMClient):
    """Makes LiteLlm's calls with a given client instead of LiteLLM's own."""

    def __init__(self, client: OpenAIClient, config: OpenAIModelConfig) -> None:
        self._client = client
        self._defaults = {"max_retries": config.max_retries, "timeout": config.timeout}

    async def acompletion(self, model: Any, messages: Any, tools: Any, **fields: Any) -> Any:
        """LiteLLM's answer, or its stream."""
        return await super().acompletion(model, messages, tools, client=self._client, **{**self._defaults, **fields})


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[LiteLlm, None]:
    """A model for ADK's agents; `openai/` selects the API for LiteLLM, the rest is the model's name on the server."""
    async with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.ADK) as client:
        yield LiteLlm(model=f"openai/{config.model_name}", llm_client=RecordedClient(client, config))


class AdkTool(BaseTool):
    """A tool with the function's own schema."""

    def __init__(self, tool: ToolFunction) -> None:
        super().__init__(name=tool.name, description=tool.description or "")
        self._tool = tool

    def _get_declaration(self) -> FunctionDeclaration:
        """The declaration that the model gets."""
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The result, or the error in the form of ADK's own tools; an exception would end the agent."""
        try:
            return to_jsonable_python(await self._tool.call(args), fallback=str)
        except NatError:
            raise
        except Exception as error:  # noqa: BLE001 - the model gets the error
            return {"error": str(error)}


def as_tool(tool: ToolFunction) -> BaseTool:
    """A tool for `LlmAgent(tools=[…])`."""
    return AdkTool(tool)
