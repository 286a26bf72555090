"""The score: whether the answer names the city."""

import re
from collections.abc import AsyncGenerator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.register_workflow import register_evaluator
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem


def score(answer: str, city: str) -> float:
    """1 if the city stands in the answer as words of its own."""
    return float(re.search(rf"\b{re.escape(city)}\b", answer) is not None)


class NamesItConfig(EvaluatorBaseConfig, name="names_it"):
    """`_type: names_it` in config.yml."""


class NamesIt(BaseEvaluator):
    """Scores one answer at a time."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """Score an answer."""
        reasoning = {"answer": item.output_obj, "expected": item.expected_output_obj}
        return EvalOutputItem(
            id=item.id, score=score(str(item.output_obj), str(item.expected_output_obj)), reasoning=reasoning
        )


@register_evaluator(config_type=NamesItConfig)
async def names_it(config: NamesItConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Give `nat` the evaluator."""
    yield EvaluatorInfo(config=config, evaluate_fn=NamesIt().evaluate, description="Names the city")
