"""Whether anything listens where an LLM is said to be; asked once, before an agent's client retries for a minute.

A server that is slow, or still loading its model, takes the connection all the same, and is left alone.
"""

import asyncio
import logging
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from nat.errors import BackendUnreachable, describe_error

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""A server that is being restarted refuses for a moment."""
_BETWEEN_SECONDS = 1.0
_CONNECT_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


async def check_listening(url: str, *, option: str, between: float = _BETWEEN_SECONDS) -> None:
    """Raise BackendUnreachable, naming the option, if nobody can be there; behind a proxy nothing is tried."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.scheme not in _PORTS or _proxied(parts.scheme, parts.hostname):
        return
    port = parts.port or _PORTS[parts.scheme]
    for attempt in range(1, ATTEMPTS + 1):
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except TimeoutError:
            logger.warning("%s: %s:%d takes no connection within %g s", option, parts.hostname, port, _CONNECT_SECONDS)
            return
        except OSError as error:
            if attempt == ATTEMPTS or isinstance(error, socket.gaierror):
                raise BackendUnreachable(
                    f"{option}: nobody answers at {parts.scheme}://{parts.hostname}:{port}: {describe_error(error)}",
                    hint="start the server of that LLM, or correct its address",
                ) from error
            await asyncio.sleep(between)
        else:
            writer.close()
            return


def _proxied(scheme: str, host: str) -> bool:
    return scheme in getproxies() and not proxy_bypass(host)
