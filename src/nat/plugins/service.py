"""The workflow `service`: an agent's own server gets a request per example, with the gateway as its model server."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any

import httpx
from pydantic import BaseModel, Field, SecretStr, ValidationError

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.capture.context import deadline
from nat.capture.response import error_text
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import USUAL_CONCURRENCY
from nat.errors import BackendUnreachable, ConfigError, ServiceFailed, describe_error
from nat.gateway import KEY_FIELD, WRAPPER_TYPE, check_installed
from nat.http.client import async_client, bearer
from nat.registry.decorators import register_function
from nat.secrets import excerpt
from nat.wire.json import text_or_json, without_surrogates

if TYPE_CHECKING:
    from nat.gateway.access import Keyring
    from nat.gateway.upstream import Upstream

GATEWAY_HOST = "127.0.0.1"
_CONNECT_SECONDS = 10.0
_CONNECTIONS = httpx.Limits(max_connections=None, keepalive_expiry=2.0)
"""As many as rollouts run at once; idle ones are closed before servers close them."""
_EXCERPT_CHARS = 500


class ServiceConfig(FunctionBaseConfig, name="service"):
    """Sends each example to an unmodified agent's server, which calls the model at the gateway's port."""

    most_at_a_time = USUAL_CONCURRENCY
    llm: LLMRef
    """The model that answers, for every model name in the service's requests."""
    url: str = Field(pattern=r"^https?://\S+$")
    """The service's route for OpenAI's chat requests, such as `http://localhost:8100/v1/chat/completions`."""
    api_key: SecretStr | None = None
    """Key of the service, sent as a bearer token."""
    gateway_port: int = Field(default=8010, ge=1, le=65535)
    """Port of this machine where the gateway listens: the base URL of the service's model is
    `http://127.0.0.1:8010/v1`."""
    timeout: float = Field(default=300.0, gt=0)
    """Seconds until a request is cancelled, and the rollout fails."""


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message


class _ChatAnswer(BaseModel):
    """What is read of OpenAI's chat response."""

    choices: Annotated[list[_Choice], Field(min_length=1)]


class ServiceWorkflow:
    """A service with a gateway as its model server."""

    def __init__(
        self, config: ServiceConfig, http: httpx.AsyncClient, upstream: "Upstream", keyring: "Keyring", *, gateway: str
    ) -> None:
        """`gateway` is the gateway's URL without `/v1`."""
        self._http = http
        self._url = config.url
        self._timeout = config.timeout
        self._upstreams = {str(config.llm): upstream}
        self._keyring = keyring
        self._base_url = f"{gateway}/v1"

    async def check(self) -> None:
        """Raise BackendUnreachable unless a server answers at the service's URL, whatever its answer is."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS), self._http.stream("GET", self._url):
                return
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise BackendUnreachable(
                f"no service answers at {self._url}: {describe_error(error)}",
                hint=f"start it first, with {self._base_url} as the base URL of its model, or correct workflow.url",
            ) from error

    async def run(self, value: Any) -> str:
        """The service's answer to an input; call it inside the rollout.

        Raises:
            ServiceFailed: there is none, or it was given without a call to the model.

        """
        from nat.gateway.access import RolloutAccess

        try:
            async with deadline(self._timeout):
                access = RolloutAccess(self._upstreams)  # its calls move the deadline
                async with self._keyring.opened(access) as key:
                    try:
                        answer = await self._answer(without_surrogates(text_or_json(value)), key)
                    except ServiceFailed as failure:
                        if not access.used:
                            failure.hint = self._hint
                        raise
        except TimeoutError as error:
            raise ServiceFailed(
                f"{self._url}: no answer within {self._timeout:g} s",
                hint="give it longer with workflow.timeout" if access.used else self._hint,
            ) from error
        if not access.used:
            raise ServiceFailed(f"{self._url} answered without a call to its model", hint=self._hint)
        return answer

    async def _answer(self, text: str, key: str) -> str:
        request = {"messages": [{"role": "user", "content": text}], KEY_FIELD: key}
        try:
            response = await self._http.post(self._url, json=request)
        except httpx.HTTPError as error:
            raise ServiceFailed(f"{self._url}: {describe_error(error)}") from error
        if not response.is_success:
            said = excerpt(error_text(response.content), _EXCERPT_CHARS)
            raise ServiceFailed(f"{self._url} answers with status {response.status_code}: {said}")
        try:
            return _ChatAnswer.model_validate_json(response.content).choices[0].message.content or ""
        except ValidationError as error:
            said = excerpt(response.content.decode(errors="replace"), _EXCERPT_CHARS)
            raise ServiceFailed(f"{self._url} sent no chat completion, but {said!r}") from error

    @property
    def _hint(self) -> str:
        """What a service without a call has to do."""
        return (
            f"no call came for this request: the service calls its model at {self._base_url}, with the request's "
            f"`{KEY_FIELD}` as its key (docs/agents/programs.md)"
        )


@register_function(config_type=ServiceConfig)
async def service(config: ServiceConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Listen on the gateway's port, check that the service is there, and send it each input."""
    check_installed("service")
    from nat.gateway.access import Keyring
    from nat.gateway.app import GatewayApp
    from nat.http.server import bound_socket, listening

    def listener() -> socket.socket:
        try:
            return bound_socket(GATEWAY_HOST, config.gateway_port)
        except OSError as error:
            raise ConfigError(
                [f"workflow.gateway_port: cannot listen on port {config.gateway_port}: {error.strerror or error}"],
                hint="stop the other program, or choose another port, also in the base URL of the service's model",
            ) from error

    upstream = await builder.get_llm(config.llm, wrapper_type=WRAPPER_TYPE)
    keyring = Keyring()
    async with (
        async_client(
            headers=bearer(None if config.api_key is None else config.api_key.get_secret_value()),
            limits=_CONNECTIONS,
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
        ) as http,
        listening(GatewayApp(keyring), listener()) as gateway,
    ):
        workflow = ServiceWorkflow(config, http, upstream, keyring, gateway=gateway)
        await workflow.check()
        yield FunctionInfo.from_fn(workflow.run, description="Sends each input to a server that calls the model")
