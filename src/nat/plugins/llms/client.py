"""OpenAI SDK clients that record every call, and the parts that clients of other frameworks share with them."""

import os
from typing import TYPE_CHECKING, Any, Self

from openai import AsyncOpenAI, OpenAI

from nat.builder.context import Context
from nat.capture.http import CapturingAsyncClient, CapturingClient
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepPayload
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import ConfigError
from nat.plugins.llms.openai import OpenAIModelConfig

if TYPE_CHECKING:
    from nat.gateway.upstream import Upstream


class ModelNameMixin:
    """Adds the name of its model to an SDK client; copies keep it."""

    model_name: str = ""

    def copy(self, **options: Any) -> Self:
        """The SDK's `copy`."""
        clone: Self = super().copy(**options)  # type: ignore[misc]  # the SDK's client, the other base class, has it
        clone.model_name = self.model_name
        return clone

    with_options = copy


class OpenAIClient(ModelNameMixin, AsyncOpenAI):
    """An `AsyncOpenAI` with a `model_name`."""


class SyncOpenAIClient(ModelNameMixin, OpenAI):
    """An `OpenAI` with a `model_name`."""


def open_client(
    config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum = LLMFrameworkEnum.OPENAI
) -> OpenAIClient:
    """A client whose calls are recorded under the framework's name; the caller closes it (`async with`)."""
    tap = open_tap(config, llm_name=llm_name, framework=framework)
    client = OpenAIClient(**connection(config, llm_name=llm_name), http_client=recorded_http(config, tap))
    client.model_name = config.model_name
    return client


def open_sync_client(
    config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum = LLMFrameworkEnum.OPENAI_SYNC
) -> SyncOpenAIClient:
    """A blocking client whose calls are recorded under the framework's name; the caller closes it (`with`)."""
    tap = open_tap(config, llm_name=llm_name, framework=framework)
    client = SyncOpenAIClient(**connection(config, llm_name=llm_name), http_client=recorded_sync_http(config, tap))
    client.model_name = config.model_name
    return client


def open_tap(config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum | None) -> Tap:
    """Records calls into the current rollout, under the LLM's key in the YAML."""
    if config.thinking_fields and config.server_url is None:
        raise ConfigError(
            [f"llms.{llm_name or config.model_name}.thinking: {config.host.name} has no such switch"],
            hint="set reasoning_effort",
        )
    return Tap(
        push_step,
        llm_name=llm_name,
        framework=framework,
        base_url=config.server_url,
        defaults=config.request_defaults,
        system_text=config.thinking_system_prompt,
    )


def recorded_http(config: OpenAIModelConfig, tap: Tap) -> CapturingAsyncClient:
    """An HTTP client for the LLM's server; the caller closes it."""
    return CapturingAsyncClient(tap, verify=config.verify_ssl)


def recorded_sync_http(config: OpenAIModelConfig, tap: Tap) -> CapturingClient:
    """A blocking HTTP client for the LLM's server; the caller closes it."""
    return CapturingClient(tap, verify=config.verify_ssl)


def open_upstream(config: OpenAIModelConfig, *, llm_name: str | None) -> "Upstream":
    """The gateway's connection to the LLM's server, which needs the extra `serve`; the caller closes it."""
    from nat.gateway.upstream import Upstream

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


def push_step(payload: IntermediateStepPayload) -> None:
    """Push a step into the current rollout."""
    Context.get().intermediate_step_manager.push_intermediate_step(payload)


def connection(config: OpenAIModelConfig, *, llm_name: str | None) -> dict[str, Any]:
    """The arguments of an SDK client that describe the server; frameworks use the same names."""
    return {
        "api_key": api_key(config, llm_name=llm_name),
        "base_url": config.server_url,
        "max_retries": config.max_retries,
        "timeout": config.timeout,
    }


def api_key(config: OpenAIModelConfig, *, llm_name: str | None) -> str:
    """The key from the config or the environment; a server with its own URL needs none."""
    if config.api_key is not None:
        return config.api_key.get_secret_value()
    host = config.host
    key = os.environ.get(host.key_variable)
    if key:
        return key
    if config.chosen_url:
        return "none"
    key_path = f"llms.{llm_name or config.model_name}.api_key"
    raise ConfigError(
        [f"{key_path}: {host.name} requires a key; none is set here or in the environment"],
        hint=f"set {host.key_variable}, or set base_url to the server that you mean",
    )
