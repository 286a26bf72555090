"""HTTP clients for the event loops that an agent starts itself: a connection cannot be used by another loop.

Frameworks with a blocking call (`run_sync`) go through it in a loop of the calling thread, which ends with the call.
"""

import asyncio
import functools
import ssl
from typing import Any
from weakref import WeakKeyDictionary

from nat.capture.library import httpx

_KEEP_NONE = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection that outlives its call would outlive its loop, and nobody could close it then."""


class LoopClients:
    """A client for every loop but the one in which the owner was made: there the owner keeps its connections."""

    def __init__(self, options: dict[str, Any]) -> None:
        """`options` are those of the owner."""
        self._options = options
        self._home = _running_loop()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def elsewhere(self) -> httpx.AsyncClient | None:
        """The client of the running loop; None at home."""
        loop = asyncio.get_running_loop()
        if loop is self._home:
            return None
        client = self._clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(**{"verify": _certificates(), **self._options, "limits": _KEEP_NONE})
            self._clients[loop] = client
        return client


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once: that takes 25 ms, and there is a loop for every run."""
    return httpx.create_ssl_context()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
