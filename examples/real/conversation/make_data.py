"""Write data/: short texts about people, the city in which each lives now, and the weather there."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from examples.real.conversation.weather import WEATHER
from examples.real.rows import Row, write

NAMES = (
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Felix",
    "Greta",
    "Hugo",
    "Ida",
    "Jonas",
    "Klara",
    "Leo",
    "Mia",
    "Noah",
)
TEXTS = (
    "{name} was born in {before} and now lives in {now}.",
    "{name} grew up in {before}, moved to {now} and lives there.",
    "{name} lives in {now} today. Before, {name} worked in {before}.",
    "Once {name} lived in {before}; today {name} lives in {now}.",
)
QUESTION = "{text} How is the weather where {name} lives?"


def rows(seed: int = 7) -> Iterator[Row]:
    """Rows without end."""
    random = Random(seed)
    while True:
        name, (before, now) = random.choice(NAMES), random.sample(sorted(WEATHER), 2)
        text = random.choice(TEXTS).format(name=name, before=before, now=now)
        answer = {"city": now, "weather": WEATHER[now]}
        yield {"question": QUESTION.format(text=text, name=name), "answer": answer}


if __name__ == "__main__":
    write(Path(__file__).parent, rows())
