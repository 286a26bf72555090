"""What a run decided: its rows, rewards, metrics, validations and verdict, a line of JSON each."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fakes.training_rows import logprobs_of
from nat.runs.journal import reading
from nat.runs.records import Phase, RunSummary
from nat.wire.training import TrainingRow

_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?|(?<![\w.])-?\d+e-?\d+")
_METRIC = re.compile(r"reward/mean|reward/std|train/(?!.*second).*")
"""The others follow from the rows, or from the clock."""
EPOCH = {"epoch", "avg_reward", "filtered_groups", "filtered_trajectories", "left_out", "policy_versions"}
SUMMARY = {"before", "after", "interval", "verdict", "num_examples", "epochs", "state", "tokens_trained", "broken_by"}


def facts(run: Path) -> list[str]:
    """The lines of a finished run."""
    return [json.dumps(fact) for fact in _facts(run)]


def differences(expected: list[str], found: list[str], bound: float) -> list[str]:
    """The lines that differ, by more than `bound` in a number: as it is and relative to the number."""
    lines = [f"- {a}\n+ {b}" for a, b in zip(expected, found, strict=False) if not _close(a, b, bound)]
    return lines if len(expected) == len(found) else [*lines, f"{len(expected)} lines expected, {len(found)} found"]


def _facts(run: Path) -> Iterator[dict[str, Any]]:
    with reading(run) as journal:
        for epoch in journal.epochs():
            metrics = {name: value for name, value in sorted(epoch.metrics.items()) if _METRIC.fullmatch(name)}
            yield epoch.model_dump(mode="json", include=EPOCH) | {"metrics": metrics}
            for record in journal.rollouts(Phase.TRAIN, epoch.epoch):
                who = f"{record.example_id}/{record.generation}, seed {record.seed}"
                error = None if record.error is None else str(record.error).partition("\n")[0]
                yield {"rollout": who, "reward": record.reward, "error": error, "rows": [*map(_row, record.rows)]}
        for validation in journal.validations():
            yield {"validation": validation.epoch, "scores": validation.scores}
        yield {"summary": journal.find(RunSummary).model_dump(mode="json", include=SUMMARY)}


def _row(row: TrainingRow) -> dict[str, Any]:
    spans = [[span.start, span.stop, span.value, span.temperature, span.policy_version] for span in row.spans]
    return {"ids": row.token_ids, "spans": spans, "logprobs": [*filter(None, logprobs_of(row))]}


def _close(a: str, b: str, bound: float) -> bool:
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    pairs = zip(map(float, _NUMBER.findall(a)), map(float, _NUMBER.findall(b)), strict=True)
    return all(abs(x - y) <= bound * (1 + abs(x)) for x, y in pairs)
