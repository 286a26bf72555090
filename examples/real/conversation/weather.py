"""The tool: the weather of a city that a text names."""

import re

WEATHER = {
    **dict.fromkeys(("Paris", "Rome", "Oslo", "Athens", "Lima"), "sunny"),
    **dict.fromkeys(("London", "Vienna", "Dublin", "Cairo", "Quito"), "rainy"),
    **dict.fromkeys(("Berlin", "Lisbon", "Boston", "Tokyo", "Delhi"), "snowy"),
    **dict.fromkeys(("Madrid", "Prague", "Denver", "Kyoto", "Geneva"), "windy"),
    **dict.fromkeys(("Warsaw", "Chicago", "Seattle", "Sydney"), "foggy"),
}


def city_in(text: str) -> str | None:
    """The city that a text names; None if it names none or several."""
    named = WEATHER.keys() & set(re.findall(r"\w+", text))
    return named.pop() if len(named) == 1 else None
