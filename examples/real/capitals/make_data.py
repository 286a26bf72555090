"""Write data/: the capitals of countries, each asked for in two ways; no held-out country is in the training data."""

import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random

from examples.real.rows import Row, write

FOLDER = Path(__file__).parent
QUESTIONS = ("What is the capital of {country}?", "Name the capital city of {country}.")


def rows(seed: int = 7) -> Iterator[Row]:
    """Both questions about each country."""
    with (FOLDER / "capitals.csv").open(encoding="utf-8") as file:
        pairs = list(csv.DictReader(file))
    Random(seed).shuffle(pairs)
    for pair in pairs:
        for question in QUESTIONS:
            yield {"question": question.format(**pair), "answer": pair["capital"]}


if __name__ == "__main__":
    write(FOLDER, rows())
