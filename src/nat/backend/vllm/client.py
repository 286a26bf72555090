"""Calls of vLLM's routes: sampling on the event loop, control from the model thread."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import ValidationError

from nat.backend.vllm.wire import GENERATE, Generate, Generated
from nat.errors import EngineFailed, WeightsReplaced, findings_of
from nat.http.client import async_client, bearer, blocking_client
from nat.secrets import excerpt

HEALTH = "/health"
CONTROL_SECONDS = 600.0
"""Longest wait for one control call, such as the load of all weights."""
_DATA, _DONE = "data: ", "[DONE]"
LOOK = "look at the end of vLLM's log: `vllm.log` in the run's folder, if the backend has started it"
"""What to do when vLLM answers with something else."""
_SHOWN_CHARS = 500
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
"""VLLM closes connections that were idle for 5 s; a request on one that it is about to close would fail."""
Explain = Callable[[httpx.HTTPError], EngineFailed]
"""Says why vLLM does not answer."""


@dataclass(frozen=True)
class VllmAddress:
    """Where vLLM listens: at a URL, or on a socket in the file system."""

    base_url: str
    socket: str | None = None
    """Path of a Unix socket; only users who may open its folder reach it."""
    api_key: str | None = None

    def client(self) -> httpx.Client:
        """A client for control calls."""
        return blocking_client(
            base_url=self.base_url,
            limits=_LIMITS,
            transport=self.socket and httpx.HTTPTransport(uds=self.socket, limits=_LIMITS),
            headers=bearer(self.api_key),
            timeout=CONTROL_SECONDS,
        )

    def async_client(self) -> httpx.AsyncClient:
        """A client for any number of requests at once, without a time limit."""
        return async_client(
            base_url=self.base_url,
            limits=_LIMITS,
            transport=self.socket and httpx.AsyncHTTPTransport(uds=self.socket, limits=_LIMITS),
            headers=bearer(self.api_key),
            timeout=None,  # an answer takes as long as its tokens; the client of our server has a limit
        )


class Control:
    """Control calls, one after another."""

    def __init__(self, address: VllmAddress, explain: Explain) -> None:
        self._http = address.client()
        self._explain = explain

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, body: object = None, **query: str) -> httpx.Response:
        return self.request("POST", path, json=body, params=query)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send one request; the response may have any status."""
        try:
            return self._http.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise EngineFailed(
                f"vLLM did not answer {method} {path} within {CONTROL_SECONDS:.0f} s",
                hint="look at the end of its log; it may be overloaded, or hang",
            ) from error
        except httpx.TransportError as error:
            raise self._explain(error) from error

    def knows(self, path: str) -> bool:
        """True if the server has a POST route at this path; GET is then refused as a method, and changes nothing."""
        return self.get(path).status_code != HTTPStatus.NOT_FOUND

    def close(self) -> None:
        self._http.close()


async def generate(http: httpx.AsyncClient, request: Generate, explain: Explain) -> Generated:
    """The whole answer.

    Raises:
        EngineFailed: vLLM refuses the request, fails or does not answer.

    """
    try:
        response = await http.post(GENERATE, content=_json(request), headers=_JSON)
    except httpx.TransportError as error:
        raise await asyncio.to_thread(explain, error) from error
    if not response.is_success:
        raise _unanswered(response)
    return _generated(response.content)


async def stream(http: httpx.AsyncClient, request: Generate, explain: Explain) -> AsyncIterator[Generated]:
    """The answer in parts; closing the iterator aborts the request."""
    try:
        async with http.stream("POST", GENERATE, content=_json(request), headers=_JSON) as response:
            if not response.is_success:
                await response.aread()
                raise _unanswered(response)
            async for line in response.aiter_lines():
                if line.startswith(_DATA) and line != _DATA + _DONE:
                    yield _generated(line.removeprefix(_DATA).encode())
    except httpx.TransportError as error:
        raise await asyncio.to_thread(explain, error) from error


def replaced(how: str) -> WeightsReplaced:
    """The error of a server that no longer has the weights of the last update."""
    return WeightsReplaced(
        f"vLLM does not have the weights of the last update any more: {how}",
        hint="it was started again, or another program changes its weights: let one run use it, and resume that run "
        "from its last checkpoint",
    )


def _unanswered(response: httpx.Response) -> EngineFailed:
    """The error of a sampling request; its adapter is loaded as long as the server runs."""
    found = refused(response)
    return replaced(found.message) if response.status_code == HTTPStatus.NOT_FOUND else found


def refused(response: httpx.Response) -> EngineFailed:
    """The error of a response that is not a success."""
    called = f"{response.request.method} {response.request.url.path}"
    return EngineFailed(
        f"vLLM answered {called} with {response.status_code}: {excerpt(response.text, _SHOWN_CHARS)}", hint=LOOK
    )


_JSON = {"Content-Type": "application/json"}


def _json(request: Generate) -> bytes:
    return request.model_dump_json(exclude_none=True).encode()


def _generated(content: bytes) -> Generated:
    try:
        return Generated.model_validate_json(content)
    except ValidationError as error:
        raise EngineFailed(
            f"vLLM's answer is not what was expected ({findings_of(error)[0]}): {excerpt(repr(content), _SHOWN_CHARS)}",
            hint=f"{LOOK}; another version may answer in another format",
        ) from error
