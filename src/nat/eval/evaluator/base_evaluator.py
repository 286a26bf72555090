"""Score items one by one, several at a time."""

import asyncio
from abc import ABC, abstractmethod

from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.eval.scoring import average, current_scoring, scored_within, unscored
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
        """The score of one item."""

    async def evaluate(self, eval_input: EvalInput) -> EvalOutput:
        """The scores of all items, in their order."""
        seconds = current_scoring().each()
        async with asyncio.TaskGroup() as tasks:
            scored = [
                tasks.create_task(self._bounded(item, seconds), name=f"{self.tqdm_desc} {item.id}")
                for item in eval_input.eval_input_items
            ]
        items = [task.result() for task in scored]
        return EvalOutput(average_score=average(items), eval_output_items=items)

    async def _bounded(self, item: EvalInputItem, seconds: float | None) -> EvalOutputItem:
        async def score() -> list[EvalOutputItem]:
            scored: object = await self.evaluate_item(item)  # user code may return anything
            if isinstance(scored, EvalOutputItem):
                return [scored]
            return [unscored(item.id, f"evaluate_item returned {excerpt(repr(scored), 80)}, not an EvalOutputItem")]

        async with self.semaphore:
            [result] = await scored_within(seconds, [item], score)
        return result
