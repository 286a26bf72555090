"""Evaluators that compute a score of one answer, each a function of the item and its config."""

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.score import is_finite, score_problem
from nat.errors import EvaluationError
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.result_path import as_json_value, compile_path, value_at
from nat.registry.decorators import register_evaluator
from nat.wire.json import text_or_json

C = TypeVar("C", bound=EvaluatorBaseConfig)
Score = tuple[float, Any]
"""The score and its reasoning."""

_NUMBER = re.compile(r"(?:(?<![\w.])[-+])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


class ItemEvaluator(BaseEvaluator):
    """An evaluator of a function; what it raises becomes the item's error."""

    def __init__(self, name: str, score: Callable[[EvalInputItem], Awaitable[Score]], max_concurrency: int = 4) -> None:
        super().__init__(max_concurrency, name)
        self._score = score

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        score, reasoning = await self._score(item)
        return EvalOutputItem(id=item.id, score=score, reasoning=reasoning)


def register_score(
    config_type: type[C], description: str
) -> Callable[[Callable[[EvalInputItem, C], Score]], Callable[[EvalInputItem, C], Score]]:
    """Register a function of an item and the config as an evaluator."""

    def decorate(function: Callable[[EvalInputItem, C], Score]) -> Callable[[EvalInputItem, C], Score]:
        @register_evaluator(config_type=config_type)
        async def build(config: C, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
            async def score(item: EvalInputItem) -> Score:
                return function(item, config)

            evaluator = ItemEvaluator(description, score)
            yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description=description)

        return function

    return decorate


class ExactMatchConfig(EvaluatorBaseConfig, name="exact_match"):
    """Scores 1 where the answer equals the expected one and 0 where it does not."""

    ignore_case: bool = False
    """Ignore upper and lower case."""
    strip: bool = True
    """Ignore white space around the texts."""

    @property
    def needs_expected_answer(self) -> bool:
        return True


@register_score(ExactMatchConfig, "Equal to the expected answer")
def exact_match(item: EvalInputItem, config: ExactMatchConfig) -> Score:
    """Compares texts as texts ("0042" is not "42"), and other values as JSON."""
    answer, expected = item.output_obj, item.expected_output_obj
    if expected is None:
        raise EvaluationError("the row has no expected answer to compare with")
    if isinstance(answer, dict | list) and isinstance(expected, str):
        expected = as_json_value(expected)
        if not isinstance(expected, dict | list):
            what = f"the answer is a {type(answer).__name__}, and the expected one a text"
            raise EvaluationError(what, hint="name its part that is the answer, as by --result_json_path '$.answer'")
    if isinstance(expected, str):
        texts = [text_or_json(answer), expected]
        if config.strip:
            texts = [text.strip() for text in texts]
        if config.ignore_case:
            texts = [text.casefold() for text in texts]
        matched = texts[0] == texts[1]
    else:
        value = as_json_value(answer)
        # JSON's true is not its 1, though Python's True is.
        matched = isinstance(value, bool) is isinstance(expected, bool) and bool(value == expected)
    return float(matched), {"expected": expected, "answer": answer}


class JsonPathScoreConfig(EvaluatorBaseConfig, name="json_path_score"):
    """The score is a part of the workflow's output, which is a record or JSON text."""

    path: str = "$.score"
    """JSON path of the score, which must be a number, true or false. It must be computed by your code: a model that
    writes the output would write its own score."""

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str) -> str:
        compile_path(path)
        return path


@register_score(JsonPathScoreConfig, "A number in the output")
def json_path_score(item: EvalInputItem, config: JsonPathScoreConfig) -> Score:
    """Raises an error if the output has no number at the path; 0 would be a guess."""
    try:
        score = value_at(compile_path(config.path), item.output_obj)
    except LookupError as error:
        raise EvaluationError(f"{config.path}: {error}") from error
    if problem := score_problem(score):
        raise EvaluationError(f"{config.path}: {problem}")
    return float(score), {"path": config.path}


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


@register_score(NumericClosenessConfig, "Near the expected number")
def numeric_closeness(item: EvalInputItem, config: NumericClosenessConfig) -> Score:
    """Compares the last number of the answer; an answer without a number is wrong and scores 0."""
    expected, number = last_number(item.expected_output_obj), last_number(item.output_obj)
    reasoning = {"expected": expected, "number": number}
    if expected is None:
        raise EvaluationError(f"the expected answer {item.expected_output_obj!r} has no number")
    if config.relative and expected == 0:
        raise EvaluationError("the expected number is 0, so an error relative to it does not exist")
    if number is None:
        return 0.0, reasoning
    error = abs(number - expected) / (abs(expected) if config.relative else 1.0)
    if error <= config.full_score_within:
        return 1.0, reasoning
    if error >= config.zero_score_from:
        return 0.0, reasoning
    return (config.zero_score_from - error) / (config.zero_score_from - config.full_score_within), reasoning


def last_number(value: Any) -> float | None:
    """The value itself if it is a number, the last number in it if it is a text ("= 1,024.5" → 1024.5)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if is_finite(value) else None
    found = _NUMBER.findall(value.replace("\N{MINUS SIGN}", "-")) if isinstance(value, str) else []
    number = float(found[-1].replace(",", "")) if found else math.nan
    return number if math.isfinite(number) else None
