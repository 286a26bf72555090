"""What the gateway asks, made from the LLM's fields."""

from nat.capture.tap import Tap
from nat.gateway.upstream import Upstream
from nat.plugins.llms.client import api_key
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.llms.tap import push_step


def open_upstream(config: OpenAIModelConfig, *, llm_name: str | None) -> Upstream:
    """To be closed by whoever opens it (`async with`)."""
    url = config.server_url
    return Upstream(
        Tap(push_step, llm_name=llm_name, base_url=url, defaults=config.request_defaults),
        base_url=url,
        api_key=api_key(config, llm_name=llm_name),
        model_name=config.model_name,
        timeout=config.timeout,
        max_retries=config.max_retries,
        max_tokens=config.max_tokens or config.max_completion_tokens,
    )
