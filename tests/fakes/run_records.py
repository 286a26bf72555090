"""Records of a run with default values, for tests about single fields."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nat.runs.records import EpochRecord, JobRecord, ValidationRecord
from nat.runs.rollouts import Beginning, Conversation, RolloutRecord
from nat.wire.training import JobStatus

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def epoch_record(epoch: int = 0, avg_reward: float = 0.5, **changes: Any) -> EpochRecord:
    """24 groups of 8 rollouts with rewards of 0 and 1, all trained on."""
    fields = {
        "epoch": epoch,
        "timestamp": NOON,
        "run_id": "run-1",
        "avg_reward": avg_reward,
        "min_reward": 0.0,
        "max_reward": 1.0,
        "num_trajectories": 192,
        "num_groups": 24,
        "filtered_trajectories": 192,
        "filtered_groups": 24,
    }
    return EpochRecord(**(fields | changes))


def epoch_records(rewards: Sequence[float], **changes: Any) -> list[EpochRecord]:
    """One epoch per mean reward."""
    return [epoch_record(epoch, reward, **changes) for epoch, reward in enumerate(rewards)]


def rollout_record(
    example_id: str = "a", generation: int = 0, messages: Sequence[dict[str, Any]] = (), **changes: Any
) -> RolloutRecord:
    """A rollout that was trained on; `messages` are a conversation of which nothing was sampled."""
    fields: dict[str, Any] = {"example_id": example_id, "generation": generation, "reward": 1.0}
    fields["conversations"] = [Conversation(began=Beginning.FIRST, messages=list(messages))] if messages else []
    return RolloutRecord(**(fields | changes))


def validation_record(epoch: int = 0, scores: dict[str, float | None] | None = None) -> ValidationRecord:
    """Two examples, of which one is solved."""
    return ValidationRecord(epoch=epoch, timestamp=NOON, scores=scores or {"x": 0.0, "y": 1.0})


def job_record(job_id: str = "job-0", status: JobStatus = JobStatus.PENDING, **changes: Any) -> JobRecord:
    """A job with one group."""
    fields = {
        "id": job_id,
        "epoch": 0,
        "backend": "fake",
        "status": status,
        "num_groups": 1,
        "num_trajectories": 8,
        "submitted_at": NOON,
    }
    return JobRecord(**(fields | changes))
