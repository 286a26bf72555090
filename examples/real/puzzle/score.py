"""The score: reasoning-gym's own, from 0 to 1."""

from collections.abc import AsyncGenerator
from typing import Any

from reasoning_gym import get_score_answer_fn

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.register_workflow import register_evaluator
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem


def score(answer: str, entry: dict[str, Any]) -> float:
    """The score of an answer to an entry of the family."""
    return float(get_score_answer_fn("syllogism")(answer.strip(), entry))


class SyllogismConfig(EvaluatorBaseConfig, name="syllogism_score"):
    """`_type: syllogism_score` in config.yml."""


class Syllogism(BaseEvaluator):
    """Scores one answer at a time."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """Score an answer."""
        reasoning = {"answer": item.output_obj, "expected": item.expected_output_obj}
        return EvalOutputItem(
            id=item.id, score=score(str(item.output_obj), item.expected_output_obj), reasoning=reasoning
        )


@register_evaluator(config_type=SyllogismConfig)
async def syllogism_score(config: SyllogismConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Give `nat` the evaluator."""
    yield EvaluatorInfo(config=config, evaluate_fn=Syllogism().evaluate, description="reasoning-gym's score")
