"""Scores of an evaluator and its time limits; an item that could not be scored has no score."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from pydantic import PrivateAttr

from nat.builder.threads import called
from nat.capture.context import Deadline, deadline
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.score import is_score, mean, score_problem
from nat.errors import ANY_FAILURE, NatError, describe_error, traceback_of
from nat.secrets import excerpt

_TIMEOUT = "eval.general.scoring_timeout"

Score = Callable[[Sequence[EvalInputItem]], Awaitable[Sequence[EvalOutputItem]]]


def average(items: Iterable[EvalOutputItem]) -> float | None:
    """The mean of all numeric scores; None if there are none."""
    scores = [float(item.score) for item in items if is_score(item.score)]
    return mean(scores) if scores else None


def unscored(item_id: object, error: str | BaseException, *, timed_out: bool = False) -> EvalOutputItem:
    """An item without a score, and the reason."""
    text = describe_error(error) if isinstance(error, BaseException) else error
    trace = traceback_of(error) if isinstance(error, BaseException) else None
    reason = {"error": text}
    return EvalOutputItem(id=item_id, score=None, reasoning=reason, error=text, traceback=trace, timed_out=timed_out)


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


def canceled_from_outside() -> bool:
    """True if the current task was cancelled; False for a CancelledError that user code raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@dataclass
class Scoring:
    """One evaluator's scoring of some answers: its time limits, and where its scores are kept."""

    per_answer: float | None = None
    """Seconds for one score."""
    keep: Callable[[Sequence[EvalOutputItem]], None] = lambda _: None
    """Gets each score once, as soon as it is known, so that a run that is killed does not ask again."""
    _failure: NatError | None = None
    """The first error of `keep`; after it, nothing more is scored, and it ends the evaluation."""
    _kept: set[str] = field(default_factory=set)
    _whole: Deadline | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has no limits, nor has one in another process: the limit of the whole call holds for both."""
        return Scoring, ()

    async def output_of(
        self, evaluate: Callable[..., Any], items: Sequence[EvalInputItem], *, at_a_time: int
    ) -> EvalOutput:
        """One valid score per item; if the evaluator fails or is late, no item has one, and each has the reason.

        The limit for all is that of `at_a_time` scores in parallel.
        """
        seconds = None if self.per_answer is None else self.per_answer * math.ceil(len(items) / at_a_time)
        try:
            async with deadline(seconds) as self._whole:
                output: object = await called(evaluate, ScoredInput.of(items, self))
        except (*ANY_FAILURE, asyncio.CancelledError) as error:  # the boundary of user code
            if canceled_from_outside():
                raise
            late = self._whole is not None and self._whole.expired
            why = f"the evaluator did not end within {seconds or 0:g} s: {len(items)} answers, {at_a_time} at a time"
            reason = f"{why} ({_TIMEOUT}: {self.per_answer or 0:g})" if late else error
            scores = [unscored(item.id, reason, timed_out=late) for item in items]
            output = EvalOutput(average_score=None, eval_output_items=scores)
        if not isinstance(output, EvalOutput):
            wrong = f"the evaluator returned {excerpt(repr(output), 80)}, not an EvalOutput"
            output = EvalOutput(average_score=None, eval_output_items=[unscored(item.id, wrong) for item in items])
        valid = validate_output(output, items)
        self._found(valid.eval_output_items)
        if self._failure is not None:
            raise self._failure
        return valid

    async def of_groups(
        self, groups: Iterable[Sequence[EvalInputItem]], score: Score, limit: asyncio.Semaphore, *, name: str
    ) -> EvalOutput:
        """The scores of all groups, as many at a time as the limit says; each has the time of as many scores.

        A group that fails or is late has no scores, and each of its items has the reason.
        """
        if self._whole is not None:
            self._whole.lift()

        async def scored(group: Sequence[EvalInputItem]) -> Sequence[EvalOutputItem]:
            seconds, timer = None if self.per_answer is None else self.per_answer * len(group), None
            async with limit:
                if self._failure is not None:
                    return [unscored(item.id, self._failure) for item in group]
                try:
                    async with deadline(seconds) as timer:
                        scores = await score(group)
                except (*ANY_FAILURE, asyncio.CancelledError) as error:  # the boundary of user code
                    if canceled_from_outside():
                        raise
                    late = timer is not None and timer.expired
                    reason = f"no score within {seconds or 0:g} s ({_TIMEOUT})" if late else error
                    return [unscored(item.id, reason, timed_out=late) for item in group]
                self._found(scores)
                return scores

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(scored(group), name=f"{name} {group[0].example}") for group in groups]
        items = [item for task in running for item in task.result()]
        return EvalOutput(average_score=average(items), eval_output_items=items)

    def _found(self, scores: Sequence[EvalOutputItem]) -> None:
        """Keep what is not kept yet; an error is not raised here, where it would be one of the evaluator."""
        new = [score for score in scores if str(score.id) not in self._kept]
        self._kept.update(str(score.id) for score in new)
        try:
            self.keep(new)
        except NatError as error:
            self._failure = self._failure or error


class ScoredInput(EvalInput):
    """What an evaluator gets in an evaluation; our base classes read its scoring."""

    _scoring: Scoring = PrivateAttr(default_factory=Scoring)

    @classmethod
    def of(cls, items: Sequence[EvalInputItem], scoring: Scoring) -> "ScoredInput":
        given = cls(eval_input_items=list(items))
        given._scoring = scoring
        return given

    @property
    def scoring(self) -> Scoring:
        return self._scoring


def scoring_of(given: EvalInput) -> Scoring:
    """The scoring of an evaluator's input; one without limits if a plug-in made the input."""
    return given.scoring if isinstance(given, ScoredInput) else Scoring()
