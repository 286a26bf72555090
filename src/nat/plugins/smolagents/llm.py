"""smolagents' OpenAI model on a recorded client that blocks, as its agents do."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from smolagents import OpenAIModel, local_python_executor
from smolagents.models import REMOVE_PARAMETER

from nat.builder.threads import ContextThreadPool
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.openai_sync.llm import open_client


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIModel, None]:
    """A model for all of smolagents' agents; the client retries, so smolagents does not retry its retries.

    Agents that call tools by JSON would demand a call with each answer. A server that obeys samples under a grammar,
    and the log probabilities are not those of the policy then.

    Code agents run their code in a bare thread, whose calls of tools and other agents would belong to no rollout.
    """
    local_python_executor.ThreadPoolExecutor = ContextThreadPool
    with open_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.SMOLAGENTS) as client:
        yield OpenAIModel(model_id=config.model_name, client=client, retry=False, tool_choice=REMOVE_PARAMETER)
