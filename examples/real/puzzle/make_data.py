"""Write data/: syllogisms of the package `reasoning-gym`, as many that follow as that do not."""

from collections.abc import Iterator
from pathlib import Path

from examples.real.rows import Row, write
from reasoning_gym import create_dataset

SIZE = 1000
"""More than are needed, since some questions repeat."""


def rows(seed: int = 7) -> Iterator[Row]:
    """Rows whose answers are the package's entries, by which it scores."""
    for entry in create_dataset("syllogism", size=SIZE, seed=seed, invalid_ratio=0.5):
        yield {"question": entry["question"], "answer": {"answer": entry["answer"], "metadata": entry["metadata"]}}


if __name__ == "__main__":
    write(Path(__file__).parent, rows())
