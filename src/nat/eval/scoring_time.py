"""How long scoring may take: each score where the evaluator goes score by score, else the whole pass."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.eval.scoring import unscored

SCORING_TIMEOUT = "eval.general.scoring_timeout"


@dataclass(frozen=True)
class ScoringTime:
    """The limit of one pass of an evaluator over `answers`."""

    per_answer: float | None
    answers: int
    at_a_time: int
    _whole: asyncio.Timeout

    @property
    def whole(self) -> float | None:
        """Seconds for all answers, as if several were scored at a time."""
        return None if self.per_answer is None else self.per_answer * math.ceil(self.answers / self.at_a_time)

    @property
    def expired(self) -> bool:
        return self._whole.expired()

    def each(self) -> float | None:
        """Seconds for one score; the caller limits each score by itself, so the limit of the whole is lifted."""
        self._whole.reschedule(None)
        return self.per_answer

    def late(self, item: EvalInputItem) -> EvalOutputItem:
        """The record of an answer without a score when the whole took too long."""
        why = f"the evaluator did not end within {self.whole:g} s: {self.answers} answers, {self.at_a_time} at a time"
        return timed_out(item, f"{why} ({SCORING_TIMEOUT}: {self.per_answer:g})")


_current: ContextVar[ScoringTime | None] = ContextVar("nat_scoring_time", default=None)


@asynccontextmanager
async def limited(config: EvalGeneralConfig, answers: int) -> AsyncIterator[ScoringTime]:
    """Cancel the block when its time is over; TimeoutError then."""
    async with asyncio.timeout(None) as timer:
        time = ScoringTime(config.scoring_timeout, answers, config.max_concurrency, timer)
        if time.whole is not None:
            timer.reschedule(asyncio.get_running_loop().time() + time.whole)
        token = _current.set(time)
        try:
            yield time
        finally:
            _current.reset(token)


def current_scoring_time() -> ScoringTime | None:
    """That of the pass that is being scored; None outside of one."""
    return _current.get()


def canceled_from_outside() -> bool:
    """True if someone asked the current task to end; False for a CancelledError that user code raised by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def timed_out(item: EvalInputItem, error: str) -> EvalOutputItem:
    """The record of an answer whose score was not there in time."""
    return unscored(item.id, error).model_copy(update={"timed_out": True})
