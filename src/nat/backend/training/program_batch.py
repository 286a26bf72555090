"""The folder in which a program finds an update's rows: `job.json`, `rows.jsonl` and `rows.safetensors`.

Both have the same rows. This is version 1 of the format; docs/scale/your_trainer.md describes it for users.

Shapes: N rows, S tokens of all rows together.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import nan
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from nat.backend.algorithms.registry import Resolved
from nat.backend.training.batch import Row
from nat.backend.training.loss import ByRow
from nat.wire.training import TrainingGroup

FORMAT_VERSION = 1
JOB, ROWS, TENSORS = "job.json", "rows.jsonl", "rows.safetensors"
_OF_TOKENS = {
    "input_ids": torch.int64,
    "loss_mask": torch.bool,
    "advantages": torch.float32,
    "logprobs": torch.float32,
    "old_logprobs": torch.float32,
    "ref_logprobs": torch.float32,
    "temperatures": torch.float32,
}
_OF_ROWS = {"group": torch.int64, "rollout": torch.int64, "reward": torch.float32, "weight": torch.float32}


def write_batch(
    folder: Path,
    groups: Sequence[TrainingGroup],
    rows: Sequence[Row],
    *,
    old: ByRow,
    reference: ByRow,
    resolved: Resolved,
    about: Mapping[str, Any],
) -> None:
    """Write rows with the policy's log probabilities, and with the reference's where the algorithm needs them.

    `about` is added to `job.json`.
    """
    lines = list(_lines(groups, rows, old, reference))
    with (folder / ROWS).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    tensors = {
        name: torch.tensor([nan if x is None else x for line in lines for x in line[name]], dtype=dtype)
        for name, dtype in _OF_TOKENS.items()
        if name in lines[0]
    }
    tensors |= {name: torch.tensor([line[name] for line in lines], dtype=dtype) for name, dtype in _OF_ROWS.items()}
    tensors["offsets"] = torch.tensor([0, *accumulate(len(line["input_ids"]) for line in lines)])
    save_file(tensors, folder / TENSORS, metadata={"format": "pt", "nat_batch": str(FORMAT_VERSION)})
    report = resolved.report()
    job = {"nat_batch": FORMAT_VERSION, **about, "rows": len(rows), "algorithm": report.algorithm}
    (folder / JOB).write_text(json.dumps(job | {"settings": report.settings}, indent=1), encoding="utf-8")


def _lines(
    groups: Sequence[TrainingGroup], rows: Sequence[Row], old: ByRow, reference: ByRow
) -> Iterator[dict[str, Any]]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for row in rows:
        values: dict[str, tuple[Sequence[float | None], float]] = {
            "loss_mask": ([1] * len(row.targets), 0),
            "advantages": (row.advantages, 0.0),
            "logprobs": (row.sampler_logprobs, 0.0),
            "old_logprobs": (old[row.index].tolist(), 0.0),
            "temperatures": (row.sampled_at, 1.0),
        }
        if reference:
            values["ref_logprobs"] = (reference[row.index].tolist(), 0.0)
        of_rollout = {"reward": rollouts[row.rollout].reward, "weight": row.weight}
        yield {"example": groups[row.group].id, "group": row.group, "rollout": row.rollout, **of_rollout} | {
            "input_ids": [*row.input_ids, row.targets[-1]],
            **{name: _spread(row, own, rest) for name, (own, rest) in values.items()},
        }


def _spread(row: Row, values: Sequence[float | None], rest: float) -> list[float | None]:
    found: list[float | None] = [rest] * row.num_tokens
    for position, value in zip(row.positions, values, strict=True):
        found[position + 1] = value
    return found
