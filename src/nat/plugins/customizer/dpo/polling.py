"""Ask for a status until it is final, with a bound on checks that fail."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nat.errors import BackendError, BackendUnreachable
from nat.plugins.customizer.dpo.connection import ServiceRefused

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class PolledStatus(Generic[T]):
    """What one check saw."""

    text: str
    """For the log, when it changes."""
    result: T | None = None
    """None while it is not final."""
    problem: str | None = None
    """Why the check counts as failed."""


async def until_final(
    check: Callable[[], Awaitable[PolledStatus[T]]], *, what: str, interval: float, max_failures: int, hint: str
) -> T:
    """The final result; the caller sets the deadline.

    Raises:
        BackendError: `max_failures` checks in a row failed; what they are about may go on.
        ServiceRefused: the service refuses to give the status, so asking again has no purpose.

    """
    failures, last = 0, ""
    while True:
        try:
            seen = await check()
        except BackendUnreachable as error:
            seen = PolledStatus("", problem=error.message)
        except ServiceRefused as error:
            if not error.passing:
                raise
            seen = PolledStatus("", problem=error.message)
        if seen.result is not None:
            logger.info("%s: %s", what, seen.text)
            return seen.result
        if seen.problem is None:
            failures = 0
            if seen.text != last:
                logger.info("%s: %s", what, seen.text)
            last = seen.text
        else:
            failures += 1
            logger.warning("%s: check %d of %d failed: %s", what, failures, max_failures, seen.problem)
            if failures == max_failures:
                raise BackendError(
                    f"the status of {what} could not be read {failures} times in a row; the last time: {seen.problem}",
                    hint=hint,
                )
        await asyncio.sleep(interval)
