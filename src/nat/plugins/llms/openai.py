"""The `openai` LLM: any server with OpenAI's API."""

import asyncio
import logging
import os
import re
import socket
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import AliasChoices, Field, SecretStr, model_validator

from nat.builder.llm import LLMProviderInfo
from nat.data_models.llm import LLMBaseConfig, ModelEndpoint
from nat.errors import BackendUnreachable, describe_error
from nat.registry.decorators import from_config, register_llm_provider
from nat.wire.hosts import is_loopback

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0

_NEMOTRON = re.compile(r"nvidia/(?:llama|nvidia).*nemotron", re.IGNORECASE)
_FIRST_NEMOTRON = re.compile(r"nvidia/llama.*(?:v1[._-][01]|v1$)", re.IGNORECASE)

_REQUEST_FIELDS = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "seed",
    "stop",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "parallel_tool_calls",
    "service_tier",
    "store",
    "metadata",
    "user",
    "logprobs",
    "top_logprobs",
)
"""Fields of the config that are request fields too."""


@dataclass(frozen=True)
class Host:
    """Who serves the models of an LLM type, unless a URL is set."""

    name: str
    key_variable: str
    """Environment variable with the key."""
    url_variable: str
    """Environment variable with the URL of another server."""
    url: str | None = None
    """None for the one that the SDK knows."""


class OpenAIModelConfig(LLMBaseConfig, name="openai"):
    """A model behind an OpenAI-compatible API: OpenAI itself, vLLM, or a gateway."""

    host: ClassVar[Host] = Host("OpenAI", key_variable="OPENAI_API_KEY", url_variable="OPENAI_BASE_URL")

    thinking: bool | None = None
    """Let the model think before it answers, or not. NVIDIA's Nemotron models get a text in the system message, other
    models `enable_thinking` and `thinking` as variables of their chat template. Default: as the server does."""
    verify_ssl: bool = True
    """Check the server's certificate; `false` only for a server of your own with a self-signed one."""
    api_key: SecretStr | None = None
    """Key of the server; default: the environment variable OPENAI_API_KEY."""
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """URL of the server with `/v1`; default: the environment variable OPENAI_BASE_URL, or OpenAI."""
    model_name: str = Field(validation_alias=AliasChoices("model_name", "model"), serialization_alias="model")
    """The model's name on the server."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature of requests that set none; some servers can only train at 1."""
    top_p: float | None = Field(default=None, ge=0, le=1)
    """Nucleus sampling of requests that set none; answers sampled with it cannot be trained on."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Limit of new tokens for requests that set none; the gateway also enforces it as a maximum."""
    seed: int | None = None
    """Seed of requests that set none; inside a rollout, the seed of each call is derived from it."""
    stop: list[str] | str | None = None
    """Stop texts of requests that set none."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """OpenAI's newer name for `max_tokens`, which its reasoning models require; set one of the two."""
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Penalty on tokens by their frequency; answers sampled with one cannot be trained on."""
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Penalty on tokens that occurred; answers sampled with one cannot be trained on."""
    logit_bias: dict[str, float] | None = None
    """Added to the logits of tokens, by their ids; answers sampled with it cannot be trained on."""
    response_format: dict[str, Any] | None = None
    """Format of the answer, such as a JSON schema, for servers that support it."""
    reasoning_effort: str | None = None
    """Effort of a reasoning model."""
    verbosity: str | None = None
    """Length of a model's answers."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may call several tools."""
    service_tier: str | None = None
    """OpenAI's service tier."""
    store: bool | None = None
    """Whether OpenAI keeps the answer."""
    metadata: dict[str, str] | None = None
    """Labels for stored answers."""
    user: str | None = None
    """The end user's name, for the server's records."""
    logprobs: bool | None = None
    """Request log probabilities always; training requests them anyway."""
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    """Number of alternatives per token to request; needs `logprobs`."""
    max_retries: int = Field(default=10, ge=0, validation_alias=AliasChoices("max_retries", "num_retries"))
    """Number of retries after a lost connection, a 408, 409, 429 or 5xx."""
    timeout: float = Field(default=600.0, gt=0, validation_alias=AliasChoices("timeout", "request_timeout"))
    """Time limit of a request, in seconds; also called `request_timeout`."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields for requests that do not set them."""

    @property
    def thinking_system_prompt(self) -> str | None:
        """The text in the system message; None if nothing is set, or for models of other families."""
        if self.thinking is None or not _NEMOTRON.match(self.model_name):
            return None
        if _FIRST_NEMOTRON.match(self.model_name):
            return f"detailed thinking {'on' if self.thinking else 'off'}"
        return "/think" if self.thinking else "/no_think"

    @property
    def thinking_fields(self) -> dict[str, Any]:
        """Fields of a chat request, for models of other families."""
        if self.thinking is None or self.thinking_system_prompt is not None:
            return {}
        return {"chat_template_kwargs": {"enable_thinking": self.thinking, "thinking": self.thinking}}

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens are two names of one limit; set one of them")
        return self

    @property
    def server_url(self) -> str | None:
        """The URL that clients send requests to; None for OpenAI itself."""
        return self.chosen_url or self.host.url

    @property
    def chosen_url(self) -> str | None:
        """The URL that the YAML or the environment sets."""
        return self.base_url or os.environ.get(self.host.url_variable)

    @property
    def request_defaults(self) -> dict[str, Any]:
        """Fields for requests that do not set them."""
        own = {name: getattr(self, name) for name in _REQUEST_FIELDS}
        return {**own, **self.thinking_fields, **self.extra_body}

    @property
    def openai_endpoint(self) -> ModelEndpoint:
        return ModelEndpoint(self.model_name, self.server_url, self.request_defaults)


class OpenAIProviderInfo(LLMProviderInfo):
    """A provider with an external server."""

    async def probe(self, llm_name: str) -> None:
        config = self.config
        if isinstance(config, OpenAIModelConfig) and (url := config.server_url) is not None:
            option = f"llms.{llm_name}.base_url"
            if config.chosen_url and not config.base_url:
                option = f"{config.host.url_variable} (llms.{llm_name})"
            await check_listening(url, option=option)


def provider_of(config: OpenAIModelConfig) -> OpenAIProviderInfo:
    """The server is external, so nothing is opened."""
    where = config.base_url or config.host.name
    return OpenAIProviderInfo(config=config, description=f"{config.model_name} at {where}")


register_llm_provider(config_type=OpenAIModelConfig)(from_config(provider_of))


async def check_listening(url: str, *, option: str) -> None:
    """Raise BackendUnreachable, naming the option, if no server listens.

    It runs once, before an agent's client retries for a minute. A slow server, or one that still loads its model,
    accepts the connection. A server behind a proxy is not tried.
    """
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    if host is None or port is None:
        return
    if not (is_loopback(host) or proxy_bypass(host) or getproxies().keys().isdisjoint((parts.scheme, "all"))):
        return
    for pause in (1.0, 1.0, None):  # a server that restarts refuses connections for a moment
        try:
            connection = await asyncio.to_thread(socket.create_connection, (host, port), _CONNECT_SECONDS)
        except TimeoutError:
            logger.warning("%s: %s:%d accepted no connection within %g s", option, host, port, _CONNECT_SECONDS)
            return
        except OSError as error:
            if pause is None or isinstance(error, socket.gaierror):
                raise BackendUnreachable(
                    f"{option}: no server answers at {parts.scheme}://{host}:{port}: {describe_error(error)}",
                    hint="start the server of that LLM, or correct its address",
                ) from error
            await asyncio.sleep(pause)
        else:
            connection.close()
            return
