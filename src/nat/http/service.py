"""Calls of a server that answers in JSON: its key, retries, and errors that say which server failed and what to do."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from nat.errors import BackendError, BackendUnreachable, describe_error, findings_of
from nat.http.client import async_client, bearer, json_of
from nat.secrets import excerpt

Json = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]
T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.5
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_SERVER_ERROR = 500
_SHOWN_CHARS = 2000


class ServiceRefused(BackendError):
    """A server answered with a status of failure."""

    def __init__(self, message: str, *, status: int, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_passing(error: BackendError) -> bool:
    """True if the same request may succeed later: nothing answered, or not with a 4xx, which stays refused."""
    if isinstance(error, ServiceRefused):
        return error.status in _PASSING or error.status >= _SERVER_ERROR
    return isinstance(error, BackendUnreachable)


class ServedModels(BaseModel):
    """GET /v1/models of a server with OpenAI's API, with the fields that its clients use."""

    class Card(BaseModel):
        """One name that the server answers to."""

        id: str

    data: list[Card]


class ServiceClient:
    """One server at one address; a subclass says what to do about failures, and may have typed calls."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        name: str,
        silent: str | None = None,
        retries: int = 0,
        sleep: Sleep = asyncio.sleep,
        **http: Any,
    ) -> None:
        """Connect on the first request; an empty key sends none.

        Args:
            base_url: Begins the URL of each request that names a path.
            key: The bearer token; a request that names another URL goes without it.
            name: Of the server, for messages.
            silent: Begins the message if nothing answers.
            retries: Of each request that does not say otherwise.
            sleep: Waits between them.
            http: Options of the HTTP client; tests pass a transport.

        """
        self.base_url = base_url
        self.name = name
        self._silent = silent or f"{name} did not answer"
        self._retries = retries
        self._sleep = sleep
        self._key = bearer(key)
        self._http = async_client(base_url=base_url, **http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def hint(self, status: int | None) -> str:
        """What to do after an answer of this status, or without an answer."""
        if status is None:
            return "check its address, and that it runs"
        return "the reason is in this answer, or in the server's log"

    def refusal(self, response: httpx.Response) -> BackendError:
        """The error for an answer that is not accepted."""
        status, request = response.status_code, response.request
        said = f"{self.name} answered {request.method} {request.url} with {status}: {reason_of(response)}"
        return ServiceRefused(said, status=status, hint=self.hint(status))

    async def send(
        self,
        method: str,
        path: str,
        *,
        accept: Collection[int] = (),
        retries: int | None = None,
        stream: bool = False,
        **content: Any,
    ) -> httpx.Response:
        """The answer, if its status is one of success or in `accept`; the caller closes it if it is a stream.

        Retried are requests that got no answer, 408, 429 and 5xx; so pass `retries=0` where a second one would do
        something twice.

        Raises:
            BackendUnreachable: nothing answers.
            ServiceRefused: the server answered with another status.

        """
        most = self._retries if retries is None else retries
        own_key = {} if "://" in path else self._key
        content["headers"] = own_key | (content.get("headers") or {})
        for attempt in range(most + 1):
            try:
                return await self._once(self._http.build_request(method, path, **content), accept, stream=stream)
            except (BackendUnreachable, ServiceRefused) as error:
                if attempt == most or not is_passing(error):
                    raise
            await self._sleep(_FIRST_WAIT_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def read(self, kind: type[T], method: str, path: str, *, wanted: str, **options: Any) -> T:
        """The answer's JSON as this type; `wanted` names it for people. `options` are those of `send`.

        Raises:
            BackendError: the answer is something else.

        """
        return self.parsed(kind, await self.send(method, path, **options), wanted=wanted)

    def parsed(self, kind: type[T], response: httpx.Response, *, wanted: str) -> T:
        """The JSON of an answer that is here already, as `read` gives it."""
        request = response.request
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            raise BackendError(
                f"the answer to {request.method} {request.url} is not {wanted} ({findings_of(error)[0]}): "
                f"{excerpt(repr(response.text), _SHOWN_CHARS)}",
                hint=f"check that {self.name} listens there, of this version, and no other program",
            ) from error

    async def served_models(self, path: str = "/models", **options: Any) -> list[str]:
        """The names that a server with OpenAI's API answers to."""
        answer = await self.read(ServedModels, "GET", path, wanted="a list of models", **options)
        return [card.id for card in answer.data]

    async def _once(self, request: httpx.Request, accept: Collection[int], *, stream: bool) -> httpx.Response:
        try:
            response = await self._http.send(request, stream=stream)
            if response.is_success or response.status_code in accept:
                return response
            await response.aread()
        except httpx.HTTPError as error:
            raise BackendUnreachable(
                f"{self._silent} {request.method} {request.url}: {describe_error(error)}", hint=self.hint(None)
            ) from error
        raise self.refusal(response)


def reason_of(response: httpx.Response) -> str:
    """What an error response says: OpenAI's message or FastAPI's `detail`, or else the whole body."""
    answer = json_of(response)
    answer = answer if isinstance(answer, dict) else {}
    error = answer.get("error")
    said = error.get("message") if isinstance(error, dict) else answer.get("detail")
    return excerpt(str(said) if said else response.text, _SHOWN_CHARS) or "(without a text)"
