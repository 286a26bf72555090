"""Scores of an evaluator and its time limits; an item that could not be scored has no score."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Real

from nat.capture.deadline import Deadline, deadline
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
    wrong = "the evaluator scored '{}', which it was not given: write `id=item.id`"
    items += [unscored(item_id, wrong.format(item_id)) for item_id in by_id]
    mean_score = average(items)
    if mean_score is None and items and all(item.error is None for item in items):  # an evaluator's own records
        mean_score = output.average_score
    return EvalOutput(average_score=mean_score, eval_output_items=items)


def _one(item_id: object, found: list[EvalOutputItem]) -> EvalOutputItem:
    if not found:
        return unscored(item_id, "the evaluator returned no score for this item")
    if len(found) > 1:
        return unscored(item_id, f"the evaluator returned {len(found)} scores for this item")
    item = found[0] if found[0].id == item_id else found[0].model_copy(update={"id": item_id})
    if is_score(item.score):
        return item
    if item.score is not None and not isinstance(item.score, Real):  # a record for a custom `compute_reward`
        return item
    return item.model_copy(update={"score": None, "error": item.error or score_problem(item.score)})


@dataclass
class Scoring:
    """One evaluator at work on some answers: its time limit, and where its scores are kept."""

    per_answer: float | None
    """Seconds for one score."""
    answers: int
    at_a_time: int
    keep: Callable[[Sequence[EvalOutputItem]], None] = lambda _: None
    """Gets each score once, as soon as it is known, so that a run that is killed does not ask again."""
    failed_to_keep: NatError | None = None
    """The first error of `keep`; after it, nothing more is scored."""
    _kept: set[str] = field(default_factory=set)
    _whole: Deadline | None = None

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Make this the scoring of the block, which is cancelled with TimeoutError when its time is over."""
        token = _current.set(self)
        try:
            async with deadline(self._seconds) as self._whole:
                yield
        finally:
            _current.reset(token)

    @property
    def _seconds(self) -> float | None:
        """For all answers, if `at_a_time` of them are scored in parallel."""
        return None if self.per_answer is None else self.per_answer * math.ceil(self.answers / self.at_a_time)

    @property
    def expired(self) -> bool:
        return self._whole is not None and self._whole.expired

    def each(self) -> float | None:
        """Seconds for one score; the caller applies them to each score, so the limit for all is removed."""
        if self._whole is not None:
            self._whole.lift()
        return self.per_answer

    def late(self, item: EvalInputItem) -> EvalOutputItem:
        """The item without a score for an answer, after the limit for all expired."""
        why = (
            f"the evaluator did not end within {self._seconds:g} s: {self.answers} answers, {self.at_a_time} at a time"
        )
        return _timed_out(item, f"{why} ({_TIMEOUT}: {self.per_answer:g})")

    def found(self, scores: Sequence[EvalOutputItem]) -> None:
        """Keep what is not kept yet. An error is not raised here, where it would be one of the evaluator."""
        new = [score for score in scores if str(score.id) not in self._kept]
        self._kept.update(str(score.id) for score in new)
        try:
            self.keep(new)
        except NatError as error:
            self.failed_to_keep = self.failed_to_keep or error


_TIMEOUT = "eval.general.scoring_timeout"
_current: ContextVar[Scoring | None] = ContextVar("nat_scoring", default=None)


def current_scoring() -> Scoring:
    """The scoring of the running evaluator; outside of one, a scoring without a limit."""
    return _current.get() or Scoring(per_answer=None, answers=0, at_a_time=1)


def canceled_from_outside() -> bool:
    """True if the current task was cancelled; False for a CancelledError that user code raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def scored_within(
    seconds: float | None, items: Sequence[EvalInputItem], score: Callable[[], Awaitable[Sequence[EvalOutputItem]]]
) -> Sequence[EvalOutputItem]:
    """What `score` returns; if it fails or takes longer, each item without a score and with the reason."""
    scoring, timer = current_scoring(), None
    if scoring.failed_to_keep is not None:
        return [unscored(item.id, scoring.failed_to_keep) for item in items]
    try:
        async with deadline(seconds) as timer:
            scores = await score()
    except (*ANY_FAILURE, asyncio.CancelledError) as error:  # the boundary of user code
        if canceled_from_outside():
            raise
        if timer is not None and timer.expired:
            return [_timed_out(item, f"no score within {seconds:g} s ({_TIMEOUT})") for item in items]
        return [unscored(item.id, error) for item in items]
    scoring.found(scores)
    return scores


async def scored_in_groups(
    groups: Iterable[Sequence[EvalInputItem]],
    score: Callable[[Sequence[EvalInputItem]], Awaitable[Sequence[EvalOutputItem]]],
    limit: asyncio.Semaphore,
    *,
    name: str,
) -> EvalOutput:
    """The scores of all groups, as many at a time as the limit says; each has the time of as many scores."""
    seconds = current_scoring().each()

    async def bounded(group: Sequence[EvalInputItem]) -> Sequence[EvalOutputItem]:
        async with limit:
            return await scored_within(None if seconds is None else seconds * len(group), group, lambda: score(group))

    async with asyncio.TaskGroup() as tasks:
        scored = [tasks.create_task(bounded(group), name=f"{name} {group[0].example}") for group in groups]
    items = [item for task in scored for item in task.result()]
    return EvalOutput(average_score=average(items), eval_output_items=items)


def _timed_out(item: EvalInputItem, error: str) -> EvalOutputItem:
    return unscored(item.id, error).model_copy(update={"timed_out": True})
