"""Score the generations of each example against each other, several examples at a time."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.eval.scoring import scoring_of


class GroupEvaluator(ABC):
    """Implement `evaluate_group`; if it raises, no item of the group has a score, and each records the error.

    The evaluator's config must say `compares_generations`.
    """

    def __init__(self, max_concurrency: int = 4, task_name: str = "Comparing") -> None:
        self._task_name = task_name
        self._semaphore = asyncio.Semaphore(max_concurrency)

    @abstractmethod
    async def evaluate_group(self, items: Sequence[EvalInputItem]) -> Sequence[EvalOutputItem]:
        """The scores of the generations of one example that have an answer."""

    async def evaluate(self, eval_input: EvalInput) -> EvalOutput:
        """The scores of all items; a group has the time limit of as many scores as it has items."""
        groups: dict[str, list[EvalInputItem]] = {}
        for item in eval_input.eval_input_items:
            groups.setdefault(item.example, []).append(item)
        scoring = scoring_of(eval_input)
        return await scoring.of_groups(groups.values(), self.evaluate_group, self._semaphore, name=self._task_name)
