"""Score items one by one, several at a time."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from nat.builder.threads import called
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.eval.scoring import scoring_of, unscored
from nat.secrets import excerpt


class BaseEvaluator(ABC):
    """Implement `evaluate_item`; if it raises, the item has no score and records the error."""

    def __init__(self, max_concurrency: int = 4, tqdm_desc: str = "Evaluating") -> None:
        self.max_concurrency = max_concurrency
        self.tqdm_desc = tqdm_desc
        """Prefix of the task names."""
        self.semaphore = asyncio.Semaphore(max_concurrency)

    @abstractmethod
    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """The score of one item; one that is not async runs in a thread."""

    async def evaluate(self, eval_input: EvalInput) -> EvalOutput:
        """The scores of all items, in their order."""

        async def score(group: Sequence[EvalInputItem]) -> list[EvalOutputItem]:
            [item] = group
            scored = await called(self.evaluate_item, item)  # user code may return anything
            if isinstance(scored, EvalOutputItem):
                return [scored.model_copy(update={"id": item.id})]
            return [unscored(item.id, f"evaluate_item returned {excerpt(repr(scored), 80)}, not an EvalOutputItem")]

        groups = [[item] for item in eval_input.eval_input_items]
        return await scoring_of(eval_input).of_groups(groups, score, self.semaphore, name=self.tqdm_desc)
