"""Clients of the OpenAI SDK's library, with the rules of `nat.http.client`.

They override `send`, which every request passes, and not the transport, which the gateway replaces.
"""

import asyncio
import functools
import ssl
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic_core import to_json

from nat.capture.library import httpx
from nat.http.answers import MAX_ANSWER_BYTES, TEXT, UNCOMPRESSED, BoundedChunks

_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200)
"""As many as a whole epoch may have in flight; httpx's own 100 would queue rollouts unseen."""
_KEEP_NONE = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection that stays open would outlive its loop and could no longer be closed."""


class SDKAsyncClient(httpx.AsyncClient):
    """A client for the OpenAI SDK, for any number of event loops; a redirect is an error that says where it leads."""

    def __init__(self, *, most: int = MAX_ANSWER_BYTES, **options: Any) -> None:
        """`most` is the number of bytes that an answer may have."""
        options = _direct(options)
        super().__init__(**options)
        self._most = most
        self._loops = LoopClients(options)

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        """Send the request over a connection of the running event loop."""
        request.headers.update(UNCOMPRESSED)
        options |= {"stream": True, "follow_redirects": False}
        client = self._loops.of_running_loop()
        response = await (super().send(request, **options) if client is None else client.send(request, **options))
        if self.is_closed:  # while it was connecting, so that the pool does not know its connection
            await _drop(response)
            raise RuntimeError("the client was closed during the request")
        response.stream, response.encoding = _SDKChunks(response, self._most), TEXT
        try:
            if response.has_redirect_location:
                await response.aclose()
                return _explained(response)
            if not stream or response.is_error:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class SDKClient(httpx.Client):
    """The same for blocking code."""

    def __init__(self, *, most: int = MAX_ANSWER_BYTES, **options: Any) -> None:
        super().__init__(**_direct(options))
        self._most = most

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        request.headers.update(UNCOMPRESSED)
        response = super().send(request, **options | {"stream": True, "follow_redirects": False})
        response.stream, response.encoding = _SDKChunks(response, self._most), TEXT
        try:
            if response.has_redirect_location:
                response.close()
                return _explained(response)
            if not stream or response.is_error:
                response.read()
        except BaseException:
            response.close()
            raise
        return response


class _SDKChunks(BoundedChunks, httpx.AsyncByteStream, httpx.SyncByteStream):
    error = httpx.RemoteProtocolError


async def _drop(response: httpx.Response) -> None:
    """Close a response, and its connection with it."""
    await response.aclose()
    if (stream := response.extensions.get("network_stream")) is not None:
        await stream.aclose()


def _direct(options: dict[str, Any]) -> dict[str, Any]:
    verify = options.pop("verify", True)
    return {
        "limits": _CONNECTIONS,
        "trust_env": False,
        "verify": _certificates() if verify is True else verify,
        **options,
    }


def _explained(redirect: httpx.Response) -> httpx.Response:
    """The answer that the SDK raises as an error: its message is all that a user of a framework sees."""
    url = redirect.request.url
    target = urlsplit(str(url.join(redirect.headers["Location"])))
    message = (
        f"{url.scheme}://{url.host} sends this request on to {target.scheme}://{target.hostname}, with its key and its "
        "prompt; no redirect is followed: set base_url to the server that you mean"
    )
    error = {"error": {"message": message, "type": "redirect", "code": None}}
    return httpx.Response(redirect.status_code, content=to_json(error), request=redirect.request)


class LoopClients:
    """One client per event loop except the owner's, since a connection cannot be used by another loop.

    Frameworks with a blocking call (`run_sync`) run it in a loop of the calling thread, which ends with the call.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        """`options` are the owner's."""
        self._options = options
        self._home = _running_loop()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def of_running_loop(self) -> httpx.AsyncClient | None:
        """The client of the running loop; None if that is the owner's loop."""
        loop = asyncio.get_running_loop()
        if loop is self._home:
            return None
        client = self._clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(**{**self._options, "limits": _KEEP_NONE})
            self._clients[loop] = client
        return client


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once, as it takes 25 ms and each blocking run has its own loop; SSL_CERT_FILE and SSL_CERT_DIR count."""
    return httpx.create_ssl_context()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
