"""Requests to one of the services: retries, lists of many pages, and errors that say which service and what to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any

import httpx

from nat.errors import BackendError, BackendUnreachable, describe_error
from nat.http.client import DirectAsyncClient, json_of
from nat.secrets import excerpt

Json = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_RETRIES = 3
_FIRST_WAIT_SECONDS = 0.5
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_SERVER_ERROR = 500
_PAGE_SIZE = 100
_ERROR_CHARS = 1000


class ServiceRefused(BackendError):
    """A service answered with a status of failure."""

    def __init__(self, message: str, *, status: int, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_passing(error: BackendError) -> bool:
    """True if the same request may succeed later: nothing answered, or not with a 4xx, which stays refused."""
    if isinstance(error, ServiceRefused):
        return error.status in _PASSING or error.status >= _SERVER_ERROR
    return isinstance(error, BackendUnreachable)


class ServiceConnection:
    """One service at one address; tests pass a transport and a `sleep`."""

    def __init__(
        self,
        base_url: str,
        token: str,
        *,
        service: str,
        key_field: str,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Connect on the first request.

        Args:
            service: Name for messages.
            key_field: The field of the adapter that holds `token`.

        """
        self.base_url = base_url
        self._service = service
        self._key_field = key_field
        self._sleep = sleep
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = DirectAsyncClient(base_url=base_url, headers=headers, timeout=_TIMEOUT, transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(
        self, method: str, path: str, *, accept: Collection[int] = (), retries: int = _RETRIES, **content: Any
    ) -> httpx.Response:
        """The answer, if its status is one of success or in `accept`.

        Retried are requests that got no answer, 408, 429 and 5xx; so pass `retries=0` where a second one would do
        something twice.

        Raises:
            BackendUnreachable: nothing answers.
            ServiceRefused: the service answered with another status.

        """
        for attempt in range(retries + 1):
            try:
                return await self._once(method, path, accept, content)
            except (BackendUnreachable, ServiceRefused) as error:
                if attempt == retries or not is_passing(error):
                    raise
            await self._sleep(_FIRST_WAIT_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def json(self, method: str, path: str, **options: Any) -> Json:
        """The object that the service answers with."""
        response = await self.send(method, path, **options)
        answer = json_of(response)
        if not isinstance(answer, dict):
            raise BackendError(
                f"{self._service} answered {method} {response.url} with no JSON object: "
                f"{excerpt(repr(response.text), _ERROR_CHARS)}",
                hint=f"check that {self._service} listens there, and no other program",
            )
        return answer

    async def listed(self, path: str) -> AsyncIterator[Json]:
        """The entries of a list, of all of its pages."""
        page = 1
        while True:
            answer = await self.json("GET", path, params={"page": page, "page_size": _PAGE_SIZE})
            entries = answer.get("data") or []
            for entry in entries:
                yield entry
            total = (answer.get("pagination") or {}).get("total_pages")
            if not entries or not isinstance(total, int) or page >= total:
                return
            page += 1

    async def _once(self, method: str, path: str, accept: Collection[int], content: Json) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise BackendUnreachable(
                f"{self._service} does not answer: {method} {self.base_url}{path}: {describe_error(error)}",
                hint=f"check the address of {self._service} in the trainer adapter, and that the service runs",
            ) from error
        if response.is_success or response.status_code in accept:
            return response
        raise ServiceRefused(
            f"{self._service} answered {method} {response.url} with {response.status_code}: {_detail(response)}",
            status=response.status_code,
            hint=self._hint(response.status_code),
        )

    def _hint(self, status: int) -> str:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return f"set `{self._key_field}` of the trainer adapter to a token that this service accepts"
        if status == HTTPStatus.NOT_FOUND:
            return f"check that {self._service} listens at this address, and the names in the trainer adapter"
        return "the reason is in this answer, or in the service's log"


def _detail(response: httpx.Response) -> str:
    """FastAPI's `detail`, or else the body."""
    answer = json_of(response)
    detail = answer.get("detail") if isinstance(answer, dict) else None
    return excerpt(str(detail) if detail else response.text, _ERROR_CHARS)
