"""Clients of other servers: ordinary httpx, with loopback off every proxy.

A key for a server on this machine never reaches the proxy that the environment names; other hosts are reached by it.
"""

import functools
import ssl
from typing import Any

import httpx
from pydantic_core import from_json

_LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")


def client_options(*, verify: bool = True, **options: Any) -> dict[str, Any]:
    """What every client is made with, for httpx and for httpx2, on which the OpenAI SDK may be built."""
    return {"mounts": dict.fromkeys(_LOOPBACK), "verify": _certificates() if verify else False, **options}


def async_client(**options: Any) -> httpx.AsyncClient:
    """For the event loop."""
    return httpx.AsyncClient(**client_options(**options))


def blocking_client(**options: Any) -> httpx.Client:
    """For blocking code."""
    return httpx.Client(**client_options(**options))


def json_of(response: httpx.Response) -> Any:
    """What the server has answered; None if it is not JSON."""
    try:
        return from_json(response.content)
    except ValueError:
        return None


def bearer(key: str | None) -> dict[str, str]:
    """The header with a key; none without one, since `Bearer ` alone is refused by clients and servers."""
    return {"Authorization": f"Bearer {key}"} if key else {}


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once, as it takes 25 ms and each blocking run of a framework has a client of its own."""
    return httpx.create_ssl_context()
