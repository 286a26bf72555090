"""`numeric_closeness`: how close the answer's number is to the expected one."""

import math
import re
from collections.abc import AsyncGenerator
from typing import Any, Self

from pydantic import Field, model_validator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.score import is_finite
from nat.errors import EvaluationError
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.registry.decorators import register_evaluator

_NUMBER = re.compile(r"(?:(?<![\w.])[-+])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


class NumericClosenessConfig(EvaluatorBaseConfig, name="numeric_closeness"):
    """Scores 1 for small errors and 0 for large ones, linear in between."""

    full_score_within: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The largest error that still scores 1."""
    zero_score_from: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The smallest error that scores 0."""
    relative: bool = False
    """Measure the error as a share of the expected number."""

    @property
    def needs_expected_answer(self) -> bool:
        return True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.full_score_within > self.zero_score_from:
            raise ValueError(
                f"full_score_within ({self.full_score_within}) is above zero_score_from ({self.zero_score_from})"
            )
        return self


class NumericClosenessEvaluator(BaseEvaluator):
    """Compares the last number of the answer; an answer without a number is wrong and scores 0."""

    def __init__(self, config: NumericClosenessConfig) -> None:
        super().__init__(tqdm_desc="numeric_closeness")
        self._config = config

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        expected = last_number(item.expected_output_obj)
        if expected is None:
            raise EvaluationError(f"the expected answer {item.expected_output_obj!r} has no number")
        number = last_number(item.output_obj)
        reasoning = {"expected": expected, "number": number}
        score = 0.0 if number is None else closeness(number, expected, self._config)
        return EvalOutputItem(id=item.id, score=score, reasoning=reasoning)


def closeness(number: float, expected: float, config: NumericClosenessConfig) -> float:
    """A score from 0 to 1 that falls with the error."""
    error = abs(number - expected)
    if config.relative:
        if expected == 0:
            raise EvaluationError("the expected number is 0, so an error relative to it does not exist")
        error /= abs(expected)
    if error <= config.full_score_within:
        return 1.0
    if error >= config.zero_score_from:
        return 0.0
    return (config.zero_score_from - error) / (config.zero_score_from - config.full_score_within)


def last_number(value: Any) -> float | None:
    """The value itself if it is a number, the last number in it if it is a text ("= 1,024.5" → 1024.5)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if is_finite(value) else None
    found = _NUMBER.findall(value.replace("\N{MINUS SIGN}", "-")) if isinstance(value, str) else []
    number = float(found[-1].replace(",", "")) if found else math.nan
    return number if math.isfinite(number) else None


@register_evaluator(config_type=NumericClosenessConfig)
async def numeric_closeness(
    config: NumericClosenessConfig, _builder: EvalBuilder
) -> AsyncGenerator[EvaluatorInfo, None]:
    """Build the evaluator."""
    evaluator = NumericClosenessEvaluator(config)
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description="Near the expected number")
