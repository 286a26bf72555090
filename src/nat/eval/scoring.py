"""Scores of an evaluator and its time limits; an item that could not be scored has no score."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Real

from nat.capture.deadline import Deadline, deadline
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.evaluator import EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.score import is_score, mean, score_problem
from nat.errors import ANY_FAILURE, NatError, describe_error, traceback_of


def average(items: Iterable[EvalOutputItem]) -> float | None:
    """The mean of all numeric scores; None if there are none."""
    scores = [float(item.score) for item in items if is_score(item.score)]
    return mean(scores) if scores else None


def unscored(item_id: object, error: str | BaseException) -> EvalOutputItem:
    """An item without a score, and the reason."""
    if isinstance(error, str):
        return EvalOutputItem(id=item_id, score=None, reasoning={"error": error}, error=error)
    item = unscored(item_id, describe_error(error))
    return item.model_copy(update={"traceback": traceback_of(error)})


def validate_output(output: EvalOutput, given: Sequence[EvalInputItem]) -> EvalOutput:
    """An evaluator's output with one item per input, in input order and with its id, and a new mean.

    Missing, duplicate, unknown and non-finite scores become items without a score.
    """
    by_id: dict[str, list[EvalOutputItem]] = {}
    for item in output.eval_output_items:
        by_id.setdefault(str(item.id), []).append(item)
    items = [_one(item.id, by_id.pop(str(item.id), [])) for item in given]
    items += [unscored(item_id, f"the evaluator scored '{item_id}', which it was not given") for item_id in by_id]
    computed = average(items)
    return EvalOutput(
        average_score=output.average_score if computed is None and _no_numbers(items) else computed,
        eval_output_items=items,
    )


def _one(item_id: object, found: list[EvalOutputItem]) -> EvalOutputItem:
    if not found:
        return unscored(item_id, "the evaluator returned no score for this item")
    if len(found) > 1:
        return unscored(item_id, f"the evaluator returned {len(found)} scores for this item")
    item = found[0] if found[0].id == item_id else found[0].model_copy(update={"id": item_id})
    if is_score(item.score):
        return item.model_copy(update={"score": item.score if isinstance(item.score, int) else float(item.score)})
    if item.score is not None and not isinstance(item.score, Real):  # a record for a custom `compute_reward`
        return item
    return item.model_copy(update={"score": None, "error": item.error or score_problem(item.score)})


def _no_numbers(items: Sequence[EvalOutputItem]) -> bool:
    """True if every item has a score, but none is a number (an evaluator's own records)."""
    return bool(items) and all(item.error is None for item in items)


SCORING_TIMEOUT = "eval.general.scoring_timeout"


def whole_time(per_answer: float | None, answers: int, at_a_time: int) -> float | None:
    """Seconds for so many answers."""
    return None if per_answer is None else per_answer * math.ceil(answers / at_a_time)


@dataclass(frozen=True)
class ScoringTime:
    """The time limit of one evaluator for `answers`."""

    per_answer: float | None
    answers: int
    at_a_time: int
    _whole: Deadline

    @property
    def whole(self) -> float | None:
        """Seconds for all answers, if `at_a_time` of them are scored in parallel."""
        return whole_time(self.per_answer, self.answers, self.at_a_time)

    @property
    def expired(self) -> bool:
        return self._whole.expired

    def each(self) -> float | None:
        """Seconds for one score; the caller applies them to each score, so the limit for all is removed."""
        self._whole.lift()
        return self.per_answer

    def late(self, item: EvalInputItem) -> EvalOutputItem:
        """The item without a score for an answer, after the limit for all expired."""
        why = f"the evaluator did not end within {self.whole:g} s: {self.answers} answers, {self.at_a_time} at a time"
        return timed_out(item, f"{why} ({SCORING_TIMEOUT}: {self.per_answer:g})")


_current: ContextVar[ScoringTime | None] = ContextVar("nat_scoring_time", default=None)


@asynccontextmanager
async def scoring_limit(config: EvalGeneralConfig, answers: int) -> AsyncIterator[ScoringTime]:
    """Cancel the block with TimeoutError when its time is over."""
    whole = whole_time(config.scoring_timeout, answers, config.max_concurrency)
    async with deadline(whole) as timer:
        limit = ScoringTime(config.scoring_timeout, answers, config.max_concurrency, timer)
        token = _current.set(limit)
        try:
            yield limit
        finally:
            _current.reset(token)


def current_scoring_time() -> ScoringTime | None:
    """The limit of the running evaluator, None outside of one."""
    return _current.get()


def canceled_from_outside() -> bool:
    """True if the current task was cancelled; False for a CancelledError that user code raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


KeepScores = Callable[[Sequence[EvalOutputItem]], None]


@dataclass
class _Kept:
    """The scores of an evaluator, each kept once."""

    keep: KeepScores
    seen: set[str] = field(default_factory=set)
    error: NatError | None = None
    """Why the first one could not be kept that could not."""

    def add(self, scores: Sequence[EvalOutputItem]) -> None:
        new = [score for score in scores if str(score.id) not in self.seen]
        self.seen.update(str(score.id) for score in new)
        try:
            self.keep(new)
        except NatError as error:
            self.error = self.error or error


_kept: ContextVar[_Kept | None] = ContextVar("nat_kept_scores", default=None)


@contextmanager
def scores_kept(keep: KeepScores) -> Iterator[None]:
    """Inside the block, `keep` gets each score of an evaluator once, as soon as it is known.

    An error of `keep` is raised at the end of the block: inside of it, it would be one of the evaluator. Until then,
    nothing more is scored.
    """
    kept = _Kept(keep)
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
    if kept.error is not None:
        raise kept.error


def keep_scores(scores: Sequence[EvalOutputItem]) -> None:
    """Keep scores that are known before their evaluator ends, so that a run that is killed does not ask again."""
    if (kept := _kept.get()) is not None:
        kept.add(scores)


async def scored_within(
    seconds: float | None, items: Sequence[EvalInputItem], score: Callable[[], Awaitable[Sequence[EvalOutputItem]]]
) -> Sequence[EvalOutputItem]:
    """What `score` returns; if it fails or takes longer, each item without a score and with the reason."""
    if (kept := _kept.get()) is not None and kept.error is not None:
        return [unscored(item.id, kept.error) for item in items]
    timer = None
    try:
        async with deadline(seconds) as timer:
            scores = await score()
    except (*ANY_FAILURE, asyncio.CancelledError) as error:  # the boundary of user code
        if canceled_from_outside():
            raise
        if timer is not None and timer.expired:
            return [timed_out(item, f"no score within {seconds:g} s ({SCORING_TIMEOUT})") for item in items]
        return [unscored(item.id, error) for item in items]
    keep_scores(scores)
    return scores


def timed_out(item: EvalInputItem, error: str) -> EvalOutputItem:
    """An item without a score because of a time limit."""
    return unscored(item.id, error).model_copy(update={"timed_out": True})
