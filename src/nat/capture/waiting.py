"""Let calls wait while their server is away: it refuses connections, has no capacity, or is being restarted.

The wait lies in our HTTP clients, below the retries of the SDK, which see nothing of it: to an agent or a judge the
call takes long. The SDK retries what is no outage: answers that break off or do not come, and requests that fail alone.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from tenacity import AsyncRetrying, Future, RetryCallState, Retrying

from nat.capture.library import httpx
from nat.capture.outages import Outages, current_outages
from nat.capture.response import error_text
from nat.data_models.rollout_failure import one_line
from nat.errors import describe_error
from nat.secrets import excerpt

_NO_CAPACITY = frozenset({429, 503})
_ANY_CAUSE = frozenset({500, 502, 504})
"""The request itself may be the cause, or what it asks takes longer than a proxy waits."""
_ERROR_CHARS = 200


@dataclass(frozen=True)
class Call:
    """A request to the server of an LLM."""

    server: str
    """The LLM and its address, for people."""
    digest: int
    """Tells requests apart."""


async def sent(call: Call, send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """Send a request, again while its server is away if somebody waits for it; what came last is returned or raised."""
    if (outages := current_outages()) is None:
        return await send()
    with ExitStack() as stack:
        response: httpx.Response = await AsyncRetrying(**_Wait(outages, call, stack).options, sleep=asyncio.sleep)(send)
        return response


def sent_blocking(call: Call, send: Callable[[], httpx.Response]) -> httpx.Response:
    """The same in a thread."""
    if (outages := current_outages()) is None:
        return send()
    with ExitStack() as stack:
        wait = _Wait(outages, call, stack)
        response: httpx.Response = Retrying(**wait.options, sleep=outages.pause_between)(send)
        return response


class _Wait:
    """The decisions of one call, as tenacity asks for them."""

    def __init__(self, outages: Outages, call: Call, stack: ExitStack) -> None:
        self._outages = outages
        self._server = outages.server(call.server)
        self._call = call
        self._stack = stack
        self._waits = False

    @property
    def options(self) -> dict[str, Any]:
        return {
            "retry": self._is_away,
            "wait": self._pause,
            "stop": self._is_given_up,
            "retry_error_callback": lambda state: _outcome(state).result(),
        }

    def _is_away(self, state: RetryCallState) -> bool:
        outcome = _outcome(state)
        if (error := outcome.exception()) is not None:
            if not _cannot_connect(error):
                return False
            why, surely = describe_error(error), True
        else:
            response: httpx.Response = outcome.result()
            status = response.status_code
            if status not in _NO_CAPACITY | _ANY_CAUSE:
                self._outages.answered(self._server)
                return False
            why = f"status {status}: {one_line(excerpt(error_text(response.content), _ERROR_CHARS))}"
            surely = status in _NO_CAPACITY
        away = self._outages.failed(self._server, self._call.digest, why, surely=surely)
        if away and not self._waits:
            self._waits = True
            self._stack.enter_context(self._outages.waiting_for(self._server))
        return away

    def _pause(self, state: RetryCallState) -> float:
        outcome = _outcome(state)
        requested = None if outcome.exception() is not None else retry_after(outcome.result())
        return self._outages.pause(self._server, state.attempt_number, requested or 0.0)

    def _is_given_up(self, state: RetryCallState) -> bool:
        return self._outages.is_given_up(self._server, state.seconds_since_start or 0.0)


def _outcome(state: RetryCallState) -> Future:
    assert state.outcome is not None, "an attempt has ended"
    return state.outcome


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
