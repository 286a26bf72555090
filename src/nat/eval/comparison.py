"""Which answers an evaluator compares that scores generations against each other.

A pass over the data has one generation of each example. Passes that belong together share a `PassComparison`: the
evaluator is called once, with the answers of all of them. In validation, an answer is compared with the one from before
training.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from nat.data_models.evaluator import EvalInputItem, EvalOutput, EvalOutputItem
from nat.eval.scoring import average, unscored
from nat.rollout.session import ScoreItems, current_pass
from nat.wire.rewards import equal

AS_GOOD = 0.5
"""The score of a held-out answer that is as good as the one from before training."""

FirstAnswers = dict[str, list[EvalInputItem]]
"""Held-out answers from before training, by evaluator."""


async def compared(evaluator: str, items: list[EvalInputItem], score: ScoreItems) -> EvalOutput:
    """The scores of a pass by an evaluator that compares generations, in the current comparison."""
    comparison = current_pass().comparison
    output = await (score(items) if comparison is None else comparison.score(evaluator, items, score))
    marked = [item.model_copy(update={"relative": True}) for item in output.eval_output_items]
    return output.model_copy(update={"eval_output_items": marked})


class SidePasses:
    """Compares the answers of `count` passes that run at the same time; the last one to arrive scores for all."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._passes: defaultdict[str, list[list[EvalInputItem]]] = defaultdict(list)
        self._scored: defaultdict[str, asyncio.Future[Sequence[EvalOutputItem]]] = defaultdict(asyncio.Future)

    async def score(self, evaluator: str, items: list[EvalInputItem], score: ScoreItems) -> EvalOutput:
        """Wait for the other passes; if one of them fails, its caller must cancel the rest."""
        passes, scored = self._passes[evaluator], self._scored[evaluator]
        begin = sum(map(len, passes))
        passes.append(items)
        if len(passes) == self._count:
            try:
                scored.set_result((await score(_numbered(passes))).eval_output_items)
            except BaseException:
                scored.cancel()
                raise
        found = (await scored)[begin : begin + len(items)]
        own = [result.model_copy(update={"id": item.id}) for item, result in zip(items, found, strict=True)]
        return EvalOutput(average_score=average(own), eval_output_items=own)


def _numbered(passes: Sequence[Sequence[EvalInputItem]]) -> list[EvalInputItem]:
    """All answers, each under an id of its own."""
    return [
        item.copy_with_updates(id=f"{item.id}_rep{number}", repetition_of=item.id)
        for number, items in enumerate(passes)
        for item in items
    ]


class AgainstFirst:
    """Compares held-out answers with those of the validation before training.

    A score is 1 for a better answer, 0 for a worse one and `AS_GOOD` for one that is as good, so the mean is the rate
    of wins against the untrained model, in every epoch against the same answers.
    """

    def __init__(self, first: FirstAnswers, *, before_training: bool) -> None:
        self._first = first
        self._before_training = before_training

    async def score(self, evaluator: str, items: list[EvalInputItem], score: ScoreItems) -> EvalOutput:
        if self._before_training:
            self._first[evaluator] = items
            results = [
                EvalOutputItem(id=item.id, score=AS_GOOD, reasoning="later answers are compared with this one")
                for item in items
            ]
            return EvalOutput(average_score=average(results), eval_output_items=results)
        first = {item.example: item for item in self._first.get(evaluator, ())}
        before = [first[item.example] for item in items if item.example in first]
        after = [item for item in items if item.example in first]
        both = (await score(_numbered([before, after]))).eval_output_items
        found = {
            item.example: _preference(item, *pair)
            for item, *pair in zip(after, both[: len(after)], both[len(after) :], strict=True)
        }
        missing = "there is no answer from before training to compare with"
        results = [found.get(item.example) or unscored(item.id, missing) for item in items]
        return EvalOutput(average_score=average(results), eval_output_items=results)


def _preference(item: EvalInputItem, before: EvalOutputItem, after: EvalOutputItem) -> EvalOutputItem:
    if before.score is None or after.score is None:
        return (after if after.score is None else before).model_copy(update={"id": item.id, "score": None})
    scores = [float(before.score), float(after.score)]
    preferred = AS_GOOD if equal(scores) else float(scores[1] > scores[0])
    reasoning = {"before": before.score, "after": after.score, "why": after.reasoning}
    return EvalOutputItem(id=item.id, score=preferred, reasoning=reasoning)
