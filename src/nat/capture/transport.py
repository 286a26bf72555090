"""How a request is sent: by the HTTP library of the OpenAI SDK, and again while its server is away.

A server is away if it refuses connections, has no capacity, or is being restarted. The wait lies below the retries of
the SDK, which see nothing of it: to an agent or a judge the call takes long, and the time limit of its rollout is
moved. What a request may cause itself is left to the SDK: other statuses, and answers that break off.
"""

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable
from math import isfinite
from random import Random
from typing import TYPE_CHECKING

from openai import DefaultAsyncHttpxClient

from nat.capture.context import Waits, capture_context
from nat.capture.response import error_text
from nat.data_models.rollout_failure import one_line
from nat.errors import BackendUnreachable, describe_error
from nat.secrets import excerpt

# Newer versions of the SDK are built on httpx2, older ones on httpx; both have the same classes. The newer SDK accepts
# a client of the other library too, but then each call costs a third more.
if TYPE_CHECKING:
    import httpx2 as httpx
else:
    _client = DefaultAsyncHttpxClient.__base__
    httpx = importlib.import_module(_client.__module__.partition(".")[0])

__all__ = ["httpx", "retry_after", "sent", "sent_blocking"]

logger = logging.getLogger(__name__)

OUTAGE_TIMEOUT = "eval.general.outage_timeout"
_START_IT = (
    "start it again, or correct its address; then `nat finetune --resume` goes on with a run. "
    f"{OUTAGE_TIMEOUT} is how long a call waits"
)
_AWAY = frozenset({429, 502, 503})
_NO_CONNECTION = (httpx.ConnectError, httpx.ConnectTimeout)
_LONGEST_PAUSE = 15.0
_ERROR_CHARS = 200
_RANDOM = Random()
"""Our own, since an agent may have seeded that of the process."""
_SILENT_SECONDS = 5.0
"""A shorter wait is not worth a word: a server that limits rates has many."""


async def sent(
    server: str, send: Callable[[httpx.Request], Awaitable[httpx.Response]], request: httpx.Request
) -> httpx.Response:
    """Send a request, again while its server is away if somebody waits for it; what came last is returned or raised."""
    if (waits := capture_context().waits) is None:
        return await send(request)
    outage = _Outage(waits, server)
    while True:
        try:
            response = await send(request)
            if (pause := outage.pause(response)) is None:
                return response
        except _NO_CONNECTION as error:
            if (pause := outage.pause(error)) is None:
                raise
        await asyncio.sleep(pause)


def sent_blocking(
    server: str, send: Callable[[httpx.Request], httpx.Response], request: httpx.Request
) -> httpx.Response:
    """The same in a thread."""
    if (waits := capture_context().waits) is None:
        return send(request)
    outage = _Outage(waits, server)
    while True:
        try:
            response = send(request)
            if (pause := outage.pause(response)) is None:
                return response
        except _NO_CONNECTION as error:
            if (pause := outage.pause(error)) is None:
                raise
        time.sleep(pause)


class _Outage:
    """The time in which one request found its server away."""

    def __init__(self, waits: Waits, server: str) -> None:
        self._waits = waits
        self._server = server
        self._since: float | None = None
        self._until = 0.0
        self._growing = waits.first_pause

    def pause(self, came: httpx.Response | Exception) -> float | None:
        """Seconds until the request is sent again, which time limits do not count; None if what came is final."""
        waits, now = self._waits, time.monotonic()
        if (why := _away(came)) is None:
            if isinstance(came, httpx.Response):
                waits.answered[self._server] = now
                if (since := waits.told.pop(self._server, None)) is not None:
                    logger.warning("the server of %s answers again after %.0f s", self._server, now - since)
            return None
        if self._since is None:
            self._since = self._until = now
        left = self._since + waits.longest - now
        if left <= 0 and waits.answered.get(self._server, 0.0) < self._since:
            seen = f"the server of {self._server} has been away for {waits.longest - left:.0f} s ({why})"
            waits.give_up(BackendUnreachable(seen, hint=_START_IT))
        if left <= 0 or waits.closed:
            return None
        jitter = _RANDOM.uniform(0, waits.first_pause)
        requested = retry_after(came) if isinstance(came, httpx.Response) else None
        pause: float = max(0.01, min(max(self._growing + jitter, requested or 0.0), left))
        self._growing = min(2 * self._growing, _LONGEST_PAUSE)
        if (limit := capture_context().limit) is not None:
            limit.stand_still(self._until, now + pause)
        self._until = now + pause
        if self._until - self._since >= min(_SILENT_SECONDS, waits.longest / 4) and self._server not in waits.told:
            waits.told[self._server] = self._since
            text = "the server of %s is away (%s); waiting for it, for at most %g s (%s)"
            logger.warning(text, self._server, why, waits.longest, OUTAGE_TIMEOUT)
        return pause


def _away(came: httpx.Response | Exception) -> str | None:
    """Why the server is away, None if it is not; a certificate that is not accepted will not be later."""
    if isinstance(came, Exception):
        return None if "CERTIFICATE_VERIFY_FAILED" in str(came) else describe_error(came)
    if came.status_code not in _AWAY:
        return None
    message = one_line(excerpt(error_text(came.content), _ERROR_CHARS))
    return f"status {came.status_code}: {message}"


def retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks a client to wait; None if it does not, or names a date."""
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(response.headers[header]) * unit
        except (KeyError, ValueError):
            continue
        if isfinite(seconds) and seconds >= 0:
            return seconds
    return None
