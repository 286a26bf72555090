"""The gateway's connection to an LLM's server; a separate module, because it needs packages of the `serve` extra."""

from nat.gateway.upstream import Upstream
from nat.plugins.llms.client import api_key, open_tap
from nat.plugins.llms.openai import OpenAIModelConfig


def open_upstream(config: OpenAIModelConfig, *, llm_name: str | None) -> Upstream:
    """The gateway's connection to the LLM's server; the caller closes it (`async with`)."""
    return Upstream(
        open_tap(config, llm_name=llm_name, framework=None),
        base_url=config.server_url,
        api_key=api_key(config, llm_name=llm_name),
        model_name=config.model_name,
        timeout=config.timeout,
        verify_ssl=config.verify_ssl,
        max_retries=config.max_retries,
        max_tokens=config.max_tokens or config.max_completion_tokens,
    )
