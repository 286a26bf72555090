"""Let calls wait while their server is away: it refuses connections, has no capacity, or is being restarted.

The wait lies in our HTTP clients, below the retries of the SDK, which see nothing of it: to an agent or a judge the
call takes long, and the time limit of its rollout is moved. What a request may cause itself is left to the SDK: other
statuses, and answers that break off.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, Retrying, wait_exponential, wait_random

from nat.capture.context import Waits, capture_context
from nat.capture.response import error_text
from nat.capture.sdk import httpx
from nat.data_models.rollout_failure import one_line
from nat.errors import BackendUnreachable, describe_error
from nat.secrets import excerpt

logger = logging.getLogger(__name__)

OUTAGE_TIMEOUT = "eval.general.outage_timeout"
_AWAY = frozenset({429, 502, 503})
_LONGEST_PAUSE = 15.0
_ERROR_CHARS = 200
_SILENT_SECONDS = 5.0
"""A shorter wait is not worth a word: a server that limits rates has many."""


async def sent(server: str, send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """Send a request, again while its server is away if somebody waits for it; what came last is returned or raised."""
    if (waits := capture_context().waits) is None:
        return await send()
    response: httpx.Response = await AsyncRetrying(**_Wait(waits, server).options, sleep=asyncio.sleep)(send)
    return response


def sent_blocking(server: str, send: Callable[[], httpx.Response]) -> httpx.Response:
    """The same in a thread."""
    if (waits := capture_context().waits) is None:
        return send()
    response: httpx.Response = Retrying(**_Wait(waits, server).options)(send)
    return response


class _Wait:
    """The decisions of one call, as tenacity asks for them."""

    def __init__(self, waits: Waits, server: str) -> None:
        self._waits = waits
        self._server = server
        first = waits.first_pause
        self._growing = wait_exponential(multiplier=first, max=_LONGEST_PAUSE) + wait_random(0, first)
        self._since: float | None = None
        self._until = 0.0
        self._why = ""

    @property
    def options(self) -> dict[str, Any]:
        return {
            "retry": self._is_away,
            "wait": self._pause,
            "stop": self._is_given_up,
            "retry_error_callback": lambda state: state.outcome and state.outcome.result(),
        }

    def _is_away(self, state: RetryCallState) -> bool:
        assert state.outcome is not None, "an attempt has ended"
        error, now = state.outcome.exception(), time.monotonic()
        if error is not None:
            if not _cannot_connect(error):
                return False
            self._why = describe_error(error)
        else:
            response: httpx.Response = state.outcome.result()
            if response.status_code not in _AWAY:
                self._waits.answered[self._server] = now
                if (since := self._waits.told.pop(self._server, None)) is not None:
                    logger.warning("the server of %s answers again after %.0f s", self._server, now - since)
                return False
            self._why = (
                f"status {response.status_code}: {one_line(excerpt(error_text(response.content), _ERROR_CHARS))}"
            )
        if self._since is None:
            self._since = self._until = now
        return not self._waits.closed

    def _pause(self, state: RetryCallState) -> float:
        """Growing, as long as the server asks for, and not beyond the end; time limits do not count it."""
        assert state.outcome is not None, "an attempt has ended"
        assert self._since is not None, "the server is away"
        waits, now = self._waits, time.monotonic()
        requested = None if state.outcome.exception() is not None else retry_after(state.outcome.result())
        left = self._since + waits.longest - now
        pause = max(0.01, min(max(self._growing(state), requested or 0.0), left))
        if (limit := capture_context().limit) is not None:
            limit.stand_still(self._until, now + pause)
        self._until = now + pause
        silent = min(_SILENT_SECONDS, waits.longest / 4)
        if self._until - self._since >= silent and self._server not in waits.told:
            waits.told[self._server] = self._since
            text = "the server of %s is away (%s); waiting for it, for at most %g s (%s)"
            logger.warning(text, self._server, self._why, waits.longest, OUTAGE_TIMEOUT)
        return pause

    def _is_given_up(self, _: RetryCallState) -> bool:
        assert self._since is not None, "the server is away"
        waited = time.monotonic() - self._since
        if waited < self._waits.longest:
            return self._waits.closed
        if self._waits.answered.get(self._server, 0.0) < self._since:
            self._waits.give_up(
                BackendUnreachable(
                    f"the server of {self._server} has been away for {waited:.0f} s ({self._why})",
                    hint="start it again, or correct its address; then `nat finetune --resume` goes on with a run. "
                    f"{OUTAGE_TIMEOUT} is how long a call waits",
                )
            )
        return True


def _cannot_connect(error: BaseException) -> bool:
    """Refused, not reached in time, or no such host; a certificate that is not accepted will not be later."""
    if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return False
    causes: list[BaseException] = [error]  # which may be a circle
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)


def retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks a client to wait, as a number or as a date; None if it does not."""
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(response.headers[header]) * unit
        except (KeyError, ValueError):
            continue
        if isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        at = parsedate_to_datetime(response.headers.get("retry-after", ""))
        return max(0.0, (at - datetime.now(at.tzinfo and UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
