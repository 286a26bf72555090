"""Write data/train.jsonl, data/validation.jsonl and the agent's contacts.

Every contact occurs in both files, with different wordings.
"""

import json
from pathlib import Path

from examples.node_agent.contacts import NAMES, VERBS, number_of

HERE = Path(__file__).parent
REPEATS = {"train": 1, "validation": 8}
"""Number of times that each held-out request is made, since one answer says little about a random policy."""


def rows(split: str) -> list[dict[str, str]]:
    """Each request with the number to call; a third of all requests is held out."""
    pairs = [
        (verb, name)
        for w, verb in enumerate(VERBS)
        for n, name in enumerate(NAMES)
        if ((w + n) % len(VERBS) == 0) == (split == "validation")
    ]
    return [
        {"id": f"{split}-{number:03}", "question": f"{verb} {name}", "answer": str(number_of(name))}
        for number, (verb, name) in enumerate(pairs * REPEATS[split])
    ]


if __name__ == "__main__":
    for name in NAMES:
        (HERE / "agent" / "contacts" / f"{name}.txt").write_text(f"{number_of(name)}\n", encoding="utf-8")
    for split in REPEATS:
        lines = [json.dumps(row) for row in rows(split)]
        (HERE / "data" / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{split}.jsonl: {len(lines)} requests")
