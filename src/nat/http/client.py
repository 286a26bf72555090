"""Clients of other servers: no proxy of the environment, no redirect, no answer without a bound.

Every client of this package is made from these classes or from those of `nat.capture.sdk`, which are the same for the
library of the OpenAI SDK; a contract test finds others. Keys and prompts go to the configured address and nowhere else.
"""

import functools
import ssl
from typing import Any

import httpx
from pydantic_core import from_json

from nat.http.answers import MAX_ANSWER_BYTES, TEXT, UNCOMPRESSED, BoundedChunks


class DirectAsyncClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` for any server; RemoteProtocolError for an answer of more than `most` bytes."""

    def __init__(self, *, most: int = MAX_ANSWER_BYTES, **options: Any) -> None:
        super().__init__(trust_env=False, verify=_certificates(), **options)
        self._most = most

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        request.headers.update(UNCOMPRESSED)
        response = await super().send(request, stream=True, **options)
        response.stream, response.encoding = _Bounded(response, self._most), TEXT
        try:
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class DirectClient(httpx.Client):
    """The same for blocking code."""

    def __init__(self, *, most: int = MAX_ANSWER_BYTES, **options: Any) -> None:
        super().__init__(trust_env=False, verify=_certificates(), **options)
        self._most = most

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        request.headers.update(UNCOMPRESSED)
        response = super().send(request, stream=True, **options)
        response.stream, response.encoding = _Bounded(response, self._most), TEXT
        try:
            if not stream:
                response.read()
        except BaseException:
            response.close()
            raise
        return response


def json_of(response: httpx.Response) -> Any:
    """What the server has answered; None if it is not JSON."""
    try:
        return from_json(response.content)
    except ValueError:
        return None


def bearer(key: str | None) -> dict[str, str]:
    """The header with a key; none without one, since `Bearer ` alone is refused by clients and servers."""
    return {"Authorization": f"Bearer {key}"} if key else {}


class _Bounded(BoundedChunks, httpx.AsyncByteStream, httpx.SyncByteStream):
    error = httpx.RemoteProtocolError


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once, as it takes 25 ms; SSL_CERT_FILE and SSL_CERT_DIR still count."""
    return httpx.create_ssl_context()
