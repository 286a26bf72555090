"""What the trainer keeps of its passes: numbers, rollouts, and the toolkit's files about them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from nat.data_models.finetuning import TrajectoryCollection
from nat.files import write_text
from nat.runs.rollouts import RolloutRecord
from nat.secrets import redact_json

PROGRESS_NAME = "data_collection_progress.jsonl"
HISTORY_NAME = "collection_history.json"
FINAL_NAME = "final_metrics.json"


class PassMetrics(BaseModel):
    """One pass over the dataset, with the keys of the toolkit's files."""

    model_config = ConfigDict(frozen=True)

    run_number: int
    timestamp: AwareDatetime
    run_id: str
    num_trajectories: int
    num_dpo_pairs: int
    avg_reward: float
    min_reward: float
    max_reward: float

    @classmethod
    def of(cls, run_number: int, collected: TrajectoryCollection, *, run_id: str, timestamp: AwareDatetime) -> Self:
        """The numbers of a pass that has trajectories."""
        every = [trajectory for group in collected.trajectories for trajectory in group]
        rewards = [trajectory.reward for trajectory in every]
        return cls(
            run_number=run_number,
            timestamp=timestamp,
            run_id=run_id,
            num_trajectories=len(every),
            num_dpo_pairs=sum(len(trajectory.episode) for trajectory in every),
            avg_reward=fmean(rewards),
            min_reward=min(rewards),
            max_reward=max(rewards),
        )


def write_passes(folder: Path, passes: Sequence[PassMetrics]) -> None:
    """Write both files about the passes so far."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [each.model_dump(mode="json") for each in passes]
    write_text(folder / PROGRESS_NAME, "".join(f"{json.dumps(entry)}\n" for entry in entries))
    _write_json(folder / HISTORY_NAME, entries)


def write_final(folder: Path, facts: Mapping[str, Any], passes: Sequence[PassMetrics]) -> None:
    """Write the file about the job, with a summary of the passes."""
    summary = {
        "total_trajectories": sum(each.num_trajectories for each in passes),
        "total_dpo_pairs": sum(each.num_dpo_pairs for each in passes),
        "avg_reward": fmean(each.avg_reward for each in passes) if passes else None,
    }
    _write_json(folder / FINAL_NAME, {**facts, "num_collection_runs": len(passes), "collection_summary": summary})


def renumbered(records: Sequence[RolloutRecord], run_number: int) -> list[RolloutRecord]:
    """The rollouts of a pass, with generations that no other pass has."""
    width = max((record.generation for record in records), default=0) + 1
    return [record.model_copy(update={"generation": record.generation + run_number * width}) for record in records]


def _write_json(path: Path, value: Any) -> None:
    write_text(path, redact_json(json.dumps(value, indent=2, default=str)) + "\n")
