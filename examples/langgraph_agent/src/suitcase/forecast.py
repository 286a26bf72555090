"""The second tool: a weather forecast, and the clothes for each weather."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig

TOWNS = ("athens", "berlin", "cairo", "delhi", "genoa", "lima", "lisbon", "madrid", "oslo", "paris", "rome", "tokyo")
WORN = {"sun": "hat", "rain": "umbrella", "snow": "boots", "wind": "scarf", "frost": "gloves", "fog": "lamp"}
"""The clothes for each weather. The tools do not tell them; the model has to know."""


def weather_of(town: str) -> str:
    """The weather in a town; neighbours in the alphabet differ."""
    if town not in TOWNS:
        raise ValueError(f"nobody forecasts the weather of {town!r}")
    place = TOWNS.index(town)
    return tuple(WORN)[(place * 5 + place // 6) % len(WORN)]


class ForecastConfig(FunctionBaseConfig, name="forecast"):
    """Configuration of a tool that knows the weather."""


@register_function(config_type=ForecastConfig)
async def forecast(_config: ForecastConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """A plain function, like the other tool."""

    async def weather(town: str) -> str:
        """The weather in a town."""
        return weather_of(town)

    yield FunctionInfo.from_fn(weather)
