"""Write data/: short texts about where somebody was and is, and the city in which they live now."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from examples.real.rows import Row, write

NAMES = (
    *("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Klara", "Leo"),
    *("Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Urs", "Vera", "Will", "Yara", "Zoe"),
)
CITIES = (
    *(
        "Paris",
        "London",
        "Berlin",
        "Madrid",
        "Rome",
        "Vienna",
        "Oslo",
        "Lisbon",
        "Dublin",
        "Prague",
        "Athens",
        "Warsaw",
    ),
    *(
        "Boston",
        "Chicago",
        "Denver",
        "Seattle",
        "Tokyo",
        "Kyoto",
        "Sydney",
        "Cairo",
        "Lima",
        "Quito",
        "Delhi",
        "Geneva",
    ),
)
TEXTS = (
    "{name} was born in {first}, studied in {second} and now lives in {now}.",
    "{name} grew up in {first}. After some years in {second}, {name} moved to {now} and lives there.",
    "{name} lives in {now} today. Before, {name} worked in {first} and in {second}.",
    "Once {name} lived in {first}, then in {second}; today {name} lives in {now}.",
    "{name}, who comes from {first} and often visits {second}, lives in {now}.",
)
QUESTION = """\
Read the text and answer the question with one word.

Text: {text}
Question: Which city does {name} live in now?
Answer:"""


def rows(seed: int = 7) -> Iterator[Row]:
    """Rows without end."""
    random = Random(seed)
    while True:
        name, (first, second, now) = random.choice(NAMES), random.sample(CITIES, 3)
        text = random.choice(TEXTS).format(name=name, first=first, second=second, now=now)
        yield {"question": QUESTION.format(text=text, name=name), "answer": now}


if __name__ == "__main__":
    write(Path(__file__).parent, rows())
