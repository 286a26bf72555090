"""Write the questions of data/train.jsonl and data/validation.jsonl, and the platforms that the tool tells.

The held-out towns do not occur in training, so the model cannot repeat a rewarded answer; it must look it up.
"""

import json
from pathlib import Path

from examples.toolkit_react_agent.timetable import QUESTIONS, TOWNS, platform_to

HERE = Path(__file__).parent
HELD_OUT = 3
"""Every third town is held out."""


def rows(split: str) -> list[dict[str, str]]:
    """Questions with the platform: one about each town of training, all wordings about each held-out town."""
    towns = [town for number, town in enumerate(TOWNS) if (number % HELD_OUT == 0) == (split == "validation")]
    if split == "train":
        asked = [(QUESTIONS[number % len(QUESTIONS)], town) for number, town in enumerate(towns)]
    else:
        asked = [(question, town) for question in QUESTIONS for town in towns]
    return [
        {"id": f"{split}-{number:03}", "question": question.format(town=town), "answer": str(platform_to(town))}
        for number, (question, town) in enumerate(asked)
    ]


if __name__ == "__main__":
    platforms = {town: platform_to(town) for town in TOWNS}
    (HERE / "toolkit" / "platforms.json").write_text(json.dumps(platforms, indent=1) + "\n", encoding="utf-8")
    for split in ("train", "validation"):
        lines = [json.dumps(row) for row in rows(split)]
        (HERE / "data" / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{split}.jsonl: {len(lines)} questions")
