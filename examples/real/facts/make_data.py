"""Write data/: sentences about people, and the four facts of each."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

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
JOBS = ("baker", "teacher", "nurse", "pilot", "farmer", "painter", "cook", "driver", "lawyer", "dentist", "singer")
CITIES = (
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
    "Lima",
)
AGES = range(20, 70)
SENTENCES = (
    "{name} is {age} years old and works as a {job} in {city}.",
    "{name}, a {age}-year-old {job}, lives in {city}.",
    "In {city} lives {name}, who is {age} and works as a {job}.",
    "The {job} {name} from {city} is {age} years old.",
)
QUESTION = """\
Write the facts of the sentence as JSON with the keys name, age, job and city.

Sentence: {text}
JSON:"""


def rows(seed: int = 7) -> Iterator[Row]:
    """Rows without end."""
    random = Random(seed)
    while True:
        facts = {
            "name": random.choice(NAMES),
            "age": random.choice(AGES),
            "job": random.choice(JOBS),
            "city": random.choice(CITIES),
        }
        text = random.choice(SENTENCES).format(**facts)
        yield {"question": QUESTION.format(text=text), "answer": facts}


if __name__ == "__main__":
    write(Path(__file__).parent, rows())
