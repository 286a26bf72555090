"""Write data/train.jsonl and data/validation.jsonl: what each person packs; the two files share no person and no town.

Every third person is held out and goes to a town that does not occur in the training data.
"""

import json
from pathlib import Path

from suitcase.forecast import WORN, weather_of
from suitcase.plans import PEOPLE, destination_of

DATA = Path(__file__).parent / "data"
REPEATS = {"train": 1, "validation": 20}
"""Number of times that each held-out question is asked, since one answer says little about a random policy."""


def people(split: str) -> list[str]:
    """The people of a split."""
    return [person for place, person in enumerate(PEOPLE) if (place % 3 == 0) == (split == "validation")]


def rows(split: str) -> list[dict[str, str]]:
    """Each question with its answer."""
    return [
        {
            "id": f"{split}-{number:03}",
            "question": f"what does {person} pack",
            "answer": WORN[weather_of(destination_of(person))],
        }
        for number, person in enumerate(people(split) * REPEATS[split])
    ]


if __name__ == "__main__":
    for split in REPEATS:
        lines = [json.dumps(row) for row in rows(split)]
        (DATA / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{split}.jsonl: {len(lines)} questions")
