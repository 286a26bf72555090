"""Write data/train.jsonl and data/validation.jsonl; pairs in the validation data are never trained on."""

import json
from itertools import permutations
from pathlib import Path

from shopkeeper.prices import ITEMS, price_of

DATA = Path(__file__).parent / "data"
SPLITS = ("train", "validation")


def pairs(split: str) -> list[tuple[str, str]]:
    """Pairs of things; every third pair is held out, in both orders."""
    held_out = [pair for pair in permutations(ITEMS, 2) if sum(map(ITEMS.index, pair)) % 3 == 0]
    others = [pair for pair in permutations(ITEMS, 2) if pair not in held_out]
    return held_out * 4 if split == "validation" else others[::2]


def rows(split: str) -> list[dict[str, str]]:
    """Each question with its answer."""
    return [
        {"id": f"{split}-{number:03}", "question": f"{a} and {b}", "answer": str(price_of(a) + price_of(b))}
        for number, (a, b) in enumerate(pairs(split))
    ]


if __name__ == "__main__":
    for split in SPLITS:
        lines = [json.dumps(row) for row in rows(split)]
        (DATA / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{split}.jsonl: {len(lines)} questions")
