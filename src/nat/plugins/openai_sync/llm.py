"""The OpenAI SDK's synchronous client, with every call recorded."""

from openai import OpenAI

from nat.capture.http import CapturingClient
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import ForOneModel, connection
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tap import open_tap


class BlockingOpenAIClient(ForOneModel, OpenAI):
    """An `OpenAI` that knows which model it is for."""


def open_client(
    config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum = LLMFrameworkEnum.OPENAI_SYNC
) -> BlockingOpenAIClient:
    """A client to be closed by whoever opens it (`with`); its calls are noted as the framework's."""
    tap = open_tap(config, llm_name=llm_name, framework=framework)
    client = BlockingOpenAIClient(**connection(config, llm_name=llm_name), http_client=CapturingClient(tap))
    client.model_name = config.model_name
    return client
