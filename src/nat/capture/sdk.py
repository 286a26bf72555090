"""Clients of the OpenAI SDK's library, for frameworks that call a model from any event loop."""

import asyncio
import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from openai import DefaultAsyncHttpxClient

from nat.http.client import client_options

# Newer versions of the SDK are built on httpx2, older ones on httpx; both have the same classes. The newer SDK accepts
# a client of the other library too, but then each call costs a third more.
if TYPE_CHECKING:
    import httpx2 as httpx
else:
    _client = DefaultAsyncHttpxClient.__base__
    httpx = importlib.import_module(_client.__module__.partition(".")[0])

__all__ = ["SDKAsyncClient", "SDKClient", "httpx", "sdk_options"]

_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200)
"""As many as a whole epoch may have in flight; httpx's own 100 would queue rollouts unseen."""
_KEEP_NONE = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection that stays open would outlive its loop and could no longer be closed."""


class SDKAsyncClient(httpx.AsyncClient):
    """A client for the OpenAI SDK, for any number of event loops: a connection cannot be used by another loop.

    Frameworks with a blocking call (`run_sync`) run it in a loop of the calling thread, which ends with the call.
    """

    def __init__(self, **options: Any) -> None:
        self._options = sdk_options(**options)
        super().__init__(**self._options)
        self._home: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._home = asyncio.get_running_loop()
        self._others: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        """Send the request over a connection of the running event loop; an error is read also of a stream."""
        loop = asyncio.get_running_loop()
        if loop is not self._home and loop not in self._others:
            self._others[loop] = httpx.AsyncClient(**{**self._options, "limits": _KEEP_NONE})
        send = super().send if loop is self._home else self._others[loop].send
        response = await send(request, stream=True, **options)
        if self.is_closed:  # while it was connecting, so that the pool does not know its connection
            await response.aclose()
            if (connection := response.extensions.get("network_stream")) is not None:
                await connection.aclose()
            raise RuntimeError("the client was closed during the request")
        try:
            if not stream or response.is_error:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class SDKClient(httpx.Client):
    """The same for blocking code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**sdk_options(**options))

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        response = super().send(request, stream=stream, **options)
        if response.is_error:
            response.read()
        return response


def sdk_options(**options: Any) -> dict[str, Any]:
    """The options of a client for the SDK, which follows redirects as the SDK's own client does."""
    return client_options(limits=_CONNECTIONS, follow_redirects=True, **options)
