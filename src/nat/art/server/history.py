"""The rollouts that clients report, kept beside the checkpoints: `history.jsonl`, `trajectories/{split}/NNNN.jsonl`.

Pure functions compute the numbers; the files
only grow, one whole write at a time.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import TypeVar

from nat.art.wire import ArtTrajectoryGroup
from nat.errors import NameRefused

HISTORY = "history.jsonl"
TRAJECTORIES = "trajectories"
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

T = TypeVar("T")
Row = Mapping[str, object]
"""A line of the history: `step`, `recorded_at`, and metrics named `split/metric`."""


def record(
    folder: Path, groups: Sequence[ArtTrajectoryGroup], *, split: str, step: int, recorded_at: datetime
) -> dict[str, float]:
    """Add rollouts that were made with the weights of `step`; gives their averages.

    Raises:
        NameRefused: `split` cannot name a folder.

    """
    if _SPLIT.fullmatch(split) is None:
        raise NameRefused(f"split {split!r} cannot name a folder: use letters, digits, '.', '_' and '-', at most 64")
    lines = [group.model_dump_json(exclude_none=True) for group in groups]
    _append(folder / TRAJECTORIES / split / f"{step:04d}.jsonl", lines)
    means = averages(groups)
    metrics = {f"{split}/{name}": value for name, value in means.items()}
    _append(folder / HISTORY, [json.dumps({"step": step, "recorded_at": recorded_at.isoformat(), **metrics})])
    return means


def read(folder: Path) -> list[Row]:
    """All lines of the history, except one that a crash left half written."""
    try:
        lines = (folder / HISTORY).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [row for line in lines if (row := _row(line)) is not None]


def averages(groups: Iterable[ArtTrajectoryGroup]) -> dict[str, float]:
    """Means over all rollouts; `reward_std_dev` is the mean over groups, `exception_rate` the share that raised."""
    groups = list(groups)
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    raised = sum(len(group.exceptions) for group in groups)
    means = _means(entry for t in trajectories for entry in {**t.metrics, "reward": t.reward}.items())
    if spreads := [pstdev([t.reward for t in group.trajectories]) for group in groups if group.trajectories]:
        means["reward_std_dev"] = fmean(spreads)
    if trajectories or raised:
        means["exception_rate"] = raised / (len(trajectories) + raised)
    return means


def metrics_of(rows: Iterable[Row], step: int) -> dict[str, float]:
    """The mean of each metric over the rows of one step."""
    entries = (entry for row in rows if row.get("step") == step for entry in row.items())
    return _means((name, value) for name, value in entries if isinstance(value, int | float) and name != "step")


def _means(entries: Iterable[tuple[T, float]]) -> dict[T, float]:
    """The mean of all values of a name."""
    found: dict[T, list[float]] = {}
    for name, value in entries:
        found.setdefault(name, []).append(float(value))
    return {name: fmean(values) for name, values in found.items()}


def _append(path: Path, lines: Sequence[str]) -> None:
    """Append whole lines; if a crash cut the last one short, begin a new line first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        size = file.seek(0, 2)
        torn = size > 0 and (file.seek(size - 1), file.read(1))[1] != b"\n"
        file.write((b"\n" if torn else b"") + b"".join(line.encode() + b"\n" for line in lines))


def _row(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
