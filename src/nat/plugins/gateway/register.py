"""`wrapper_type: gateway`: no client for a framework, but what the gateway asks on behalf of agents elsewhere."""

from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.gateway import WRAPPER_TYPE
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client


@register_llm_client(config_type=OpenAIModelConfig, wrapper_type=WRAPPER_TYPE)
async def gateway_upstream(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
    """An Upstream, for a `nat.gateway.access.RolloutAccess`."""
    from nat.plugins.gateway.llm import open_upstream  # noqa: PLC0415 - the HTTP library takes a second to import

    async with open_upstream(config, llm_name=builder.llm_name) as upstream:
        yield upstream
