"""What the journal keeps of a training job: from the adapter's references and statuses to records. Pure."""

from datetime import datetime
from typing import Any

from nat.data_models.finetuning import TrainingJobRef, TrainingJobStatus
from nat.data_models.score import is_finite
from nat.finetuning.epoch import PlayedEpoch
from nat.runs.records import JobRecord, count_of
from nat.wire.training import JobStatus


def submitted(ref: TrainingJobRef, played: PlayedEpoch, at: datetime) -> JobRecord:
    """The job as the backend took it; its id is the backend's own if the reference names one."""
    rows = [row for record in played.records if record.left_out is None for row in record.rows]
    return JobRecord(
        id=str((ref.metadata or {}).get("job_id", f"{ref.run_id}-{played.epoch:06d}")),
        epoch=played.epoch,
        backend=ref.backend,
        status=JobStatus.PENDING,
        num_groups=len(played.chosen.trajectories),
        num_trajectories=sum(map(len, played.chosen.trajectories)),
        num_rows=len(rows),
        submitted_at=at,
    )


def finished(job: JobRecord, status: TrainingJobStatus, played: PlayedEpoch, at: datetime) -> JobRecord:
    """The same job at its end."""
    version = (status.metadata or {}).get("policy_version")
    done = status.status.value == JobStatus.COMPLETED
    metrics = reported_metrics(status)
    submitted_tokens = sum(row.num_sampled for r in played.records if r.left_out is None for row in r.rows)
    return job.model_copy(
        update={
            "status": JobStatus(status.status.value),
            "tokens_trained": count_of(metrics, "trained_tokens", submitted_tokens) if done else 0,
            "policy_version": None if version is None else str(version),
            "metrics": metrics,
            "message": status.message,
            "finished_at": at,
        }
    )


def reported_metrics(status: TrainingJobStatus) -> dict[str, float]:
    """What of `metadata["metrics"]` fits into a float; backends of others may send anything."""
    metrics: Any = (status.metadata or {}).get("metrics")
    if not isinstance(metrics, dict):
        return {}
    return {str(name): float(value) for name, value in metrics.items() if isinstance(value, float) or is_finite(value)}
