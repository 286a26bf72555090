"""Write data/train.jsonl and data/validation.jsonl: every book, with wordings that only one of the files has."""

import json
from pathlib import Path

from librarian.catalogue import QUESTIONS, TITLES, shelf_of

DATA = Path(__file__).parent / "data"
REPEATS = {"train": 1, "validation": 10}
"""Number of times that each held-out question is asked, since one answer says little about a random policy."""


def questions(split: str) -> list[tuple[str, str]]:
    """The questions of a split; a third of all combinations of book and wording is held out."""
    pairs = [(asked, title) for asked in range(len(QUESTIONS)) for title in range(len(TITLES))]
    return [
        (f"{QUESTIONS[asked]} {TITLES[title]}", TITLES[title])
        for asked, title in pairs
        if ((asked + title) % len(QUESTIONS) == 0) == (split == "validation")
    ]


def rows(split: str) -> list[dict[str, str]]:
    """Each question with its answer."""
    return [
        {"id": f"{split}-{number:03}", "question": question, "answer": str(shelf_of(title))}
        for number, (question, title) in enumerate(questions(split) * REPEATS[split])
    ]


if __name__ == "__main__":
    for split in REPEATS:
        lines = [json.dumps(row) for row in rows(split)]
        (DATA / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{split}.jsonl: {len(lines)} questions")
