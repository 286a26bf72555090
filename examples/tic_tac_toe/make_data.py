"""Write data/train.jsonl and data/validation.jsonl with the opener of each game; the harness seeds the opponent."""

import json
from pathlib import Path

DATA = Path(__file__).parent / "data"
SIZES = {"train": 24, "validation": 300}


def rows(split: str, size: int) -> list[dict[str, str]]:
    """Games that agent (X) and opponent (O) open alternately, so that neither has an advantage."""
    return [{"id": f"{split}-{number:03}", "question": "XO"[number % 2]} for number in range(size)]


if __name__ == "__main__":
    for split, size in SIZES.items():
        lines = [json.dumps(row) for row in rows(split, size)]
        (DATA / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{split}.jsonl: {size} games")
