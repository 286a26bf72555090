"""Send one example to the service: a chat request, the key of its rollout, an answer."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field, SecretStr, ValidationError

from nat.capture.deadline import deadline
from nat.capture.response import error_text
from nat.errors import BackendUnreachable, ServiceFailed, describe_error
from nat.gateway.access import Keyring, RolloutAccess
from nat.gateway.app import KEY_FIELD
from nat.gateway.upstream import Upstream
from nat.http.client import async_client, bearer
from nat.secrets import excerpt
from nat.wire.json import text_or_json, without_surrogates

_CONNECT_SECONDS = 10.0
_CONNECTIONS = httpx.Limits(max_connections=None, keepalive_expiry=2.0)
"""As many as rollouts run at once; idle ones are closed before servers close them."""
_EXCERPT_CHARS = 500


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message


class _ChatAnswer(BaseModel):
    """What is read of OpenAI's chat response."""

    choices: Annotated[list[_Choice], Field(min_length=1)]


def open_client(api_key: SecretStr | None) -> httpx.AsyncClient:
    """A client of the service."""
    return async_client(
        headers=bearer(None if api_key is None else api_key.get_secret_value()),
        limits=_CONNECTIONS,
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
    )


class ServiceWorkflow:
    """A service with a gateway as its model server."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        upstreams: Mapping[str, Upstream],
        keyring: Keyring,
        *,
        gateway: str,
        timeout: float,
    ) -> None:
        """`gateway` is the gateway's URL without `/v1`; `timeout` is in seconds, for one example."""
        self._http = http
        self._url = url
        self._upstreams = upstreams
        self._keyring = keyring
        self._base_url = f"{gateway}/v1"
        self._timeout = timeout

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
