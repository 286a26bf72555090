"""The rows of a task, written to its `data/`: 180 to train on and 120 held out, no question in both."""

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

NUM_TRAIN, NUM_HELD_OUT = 180, 120

Row = dict[str, Any]
"""`question` and `answer`."""


def splits(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The first rows whose questions differ, by the name of their file.

    Raises:
        ValueError: there are too few.

    """
    distinct = list(islice(_distinct(rows), NUM_TRAIN + NUM_HELD_OUT))
    if len(distinct) < NUM_TRAIN + NUM_HELD_OUT:
        raise ValueError(f"{len(distinct)} different questions, where {NUM_TRAIN + NUM_HELD_OUT} were expected")
    named = [{"id": number, **row} for number, row in enumerate(distinct)]
    return {"train": named[:NUM_TRAIN], "held_out": named[NUM_TRAIN:]}


def _distinct(rows: Iterable[Row]) -> Iterable[Row]:
    seen = set()
    for row in rows:
        if row["question"] not in seen:
            seen.add(row["question"])
            yield row


def write(task: Path, rows: Iterable[Row]) -> None:
    """Write `data/train.jsonl` and `data/held_out.jsonl` in the folder of a task."""
    (task / "data").mkdir(exist_ok=True)
    for name, split in splits(rows).items():
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in split]
        (task / "data" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
