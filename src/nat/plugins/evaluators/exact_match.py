"""`exact_match`: 1 if the answer is the expected one, else 0."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.errors import EvaluationError
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.result_path import as_json_value
from nat.registry.decorators import register_evaluator


class ExactMatchConfig(EvaluatorBaseConfig, name="exact_match"):
    """Scores 1 where the answer equals the expected one and 0 where it does not."""

    ignore_case: bool = False
    """Ignore upper and lower case."""
    strip: bool = True
    """Ignore white space around the texts."""

    @property
    def needs_expected_answer(self) -> bool:
        return True


class ExactMatchEvaluator(BaseEvaluator):
    """Compares texts as texts ("0042" is not "42"), and other values as JSON."""

    def __init__(self, config: ExactMatchConfig) -> None:
        super().__init__(tqdm_desc="exact_match")
        self._config = config

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        if item.expected_output_obj is None:
            raise EvaluationError("the row has no expected answer to compare with")
        matched = matches(item.output_obj, item.expected_output_obj, self._config)
        reasoning = {"expected": item.expected_output_obj, "answer": item.output_obj}
        return EvalOutputItem(id=item.id, score=float(matched), reasoning=reasoning)


def matches(answer: Any, expected: Any, config: ExactMatchConfig) -> bool:
    """True if both texts are equal; an expected value of another type is compared as JSON."""
    if isinstance(expected, str):
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
        return _normalised(text, config) == _normalised(expected, config)
    value = as_json_value(answer)
    # JSON's true is not its 1, though Python's True is.
    return isinstance(value, bool) is isinstance(expected, bool) and bool(value == expected)


def _normalised(text: str, config: ExactMatchConfig) -> str:
    text = text.strip() if config.strip else text
    return text.casefold() if config.ignore_case else text


@register_evaluator(config_type=ExactMatchConfig)
async def exact_match(config: ExactMatchConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Build the evaluator."""
    evaluator = ExactMatchEvaluator(config)
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description="Equal to the expected answer")
