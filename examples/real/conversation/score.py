"""The score: half for the city whose weather was looked up, half for the weather in the answer."""

import re
from collections.abc import AsyncGenerator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.register_workflow import register_evaluator
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem

WEATHERS = frozenset({"sunny", "rainy", "snowy", "windy", "foggy"})


def score(answer: dict[str, str], expected: dict[str, str]) -> float:
    """0, 0.5 or 1; an answer that names several weathers has none."""
    named = WEATHERS.intersection(re.findall(r"[a-z]+", answer["reply"].lower()))
    return (answer["city"] == expected["city"]) / 2 + (named == {expected["weather"]}) / 2


class CityAndWeatherConfig(EvaluatorBaseConfig, name="city_and_weather"):
    """`_type: city_and_weather` in config.yml."""


class CityAndWeather(BaseEvaluator):
    """Scores one answer at a time."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        """Score an answer."""
        reasoning = {"answer": item.output_obj, "expected": item.expected_output_obj}
        return EvalOutputItem(id=item.id, score=score(item.output_obj, item.expected_output_obj), reasoning=reasoning)


@register_evaluator(config_type=CityAndWeatherConfig)
async def city_and_weather(config: CityAndWeatherConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Give `nat` the evaluator."""
    yield EvaluatorInfo(
        config=config, evaluate_fn=CityAndWeather().evaluate, description="The right city, and its weather"
    )
