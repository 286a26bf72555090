"""The score: the share of the four facts that the answer has."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.register_workflow import register_evaluator
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem


def score(answer: str, facts: dict[str, Any]) -> float:
    """The share of right fields of an answer that is one JSON object; 0 for any other answer."""
    try:
        found = json.loads(answer)
    except ValueError:
        return 0.0
    if not isinstance(found, dict):
        return 0.0
    right = [name for name, fact in facts.items() if found.get(name) == fact]
    return len(right) / len(facts)


class ShareOfFactsConfig(EvaluatorBaseConfig, name="share_of_facts"):
    """`_type: share_of_facts` in config.yml."""


class ShareOfFacts(BaseEvaluator):
    """Scores one answer at a time."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """Score an answer."""
        reasoning = {"answer": item.output_obj, "expected": item.expected_output_obj}
        return EvalOutputItem(
            id=item.id, score=score(str(item.output_obj), item.expected_output_obj), reasoning=reasoning
        )


@register_evaluator(config_type=ShareOfFactsConfig)
async def share_of_facts(config: ShareOfFactsConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Give `nat` the evaluator."""
    yield EvaluatorInfo(config=config, evaluate_fn=ShareOfFacts().evaluate, description="Share of right facts")
