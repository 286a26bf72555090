"""The records of an epoch and of its training job, built from rollouts and statuses. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nat.data_models.finetuning import (
    BudgetConfig,
    CurriculumLearningConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)
from nat.data_models.llm_usage import price_of
from nat.data_models.score import is_finite
from nat.finetuning.metrics import PRICE, broken_by, epoch_metrics, scores_beside, success_by_example
from nat.finetuning.trajectories.calls import token_logprobs
from nat.finetuning.trajectories.groups import has_signal, rollout_key, statistics_of
from nat.runs.records import EpochRecord, JobRecord, PurposeUsage, count_of, epoch_number
from nat.runs.rollouts import LeftOutCause, RolloutRecord, tally, usage_by_purpose
from nat.wire.training import JobStatus, TrainingRow

_USAGE = TypeAdapter(PurposeUsage)


@dataclass(frozen=True)
class PlayedEpoch:
    """An epoch whose rollouts are done and whose groups are chosen."""

    epoch: int
    run_id: str
    collected: TrajectoryCollection
    chosen: TrajectoryCollection
    records: Sequence[RolloutRecord]
    """One for each rollout; it says if the trainer did not choose it."""
    staleness: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the age of the weights that sampled."""
    played: bool = True
    """False if the trajectories come from a file."""
    compared: bool = True
    """False if the algorithm compares no rewards, so that a group needs no difference."""

    @property
    def rows(self) -> Sequence[TrainingRow]:
        """Those that were submitted."""
        return [row for record in self.records if record.left_out is None for row in record.rows]


def with_signal(collection: TrajectoryCollection, *, across_groups: bool) -> TrajectoryCollection:
    """Drop groups of equal rewards: their advantage is zero, so they would only dilute the batch.

    For an algorithm that compares across groups, all groups stay if any two rewards of the batch differ.
    """
    if across_groups:
        every = [trajectory for group in collection.trajectories for trajectory in group]
        groups = collection.trajectories if has_signal(every) else []
    else:
        groups = [group for group in collection.trajectories if has_signal(group)]
    return TrajectoryCollection(trajectories=groups, run_id=collection.run_id)


def marked(
    records: Sequence[RolloutRecord],
    collected: TrajectoryCollection,
    chosen: TrajectoryCollection,
    config: CurriculumLearningConfig,
) -> list[RolloutRecord]:
    """Set the cause in the records whose trajectory was collected but not chosen."""
    kept = {id(trajectory) for group in chosen.trajectories for trajectory in group}
    needed = config.min_reward_diff if config.enabled else 0.0
    causes = {
        rollout_key(trajectory, generation): LeftOutCause.OUTSIDE_CURRICULUM
        if has_signal(group, needed)
        else LeftOutCause.NO_REWARD_DIFFERENCE
        for group in collected.trajectories
        for generation, trajectory in enumerate(group)
        if id(trajectory) not in kept
    }
    return [
        record.model_copy(update={"left_out": causes[key]})
        if record.left_out is None and (key := (record.example_id, record.generation)) in causes
        else record
        for record in records
    ]


def epoch_record(
    played: PlayedEpoch,
    *,
    phase: str | None = None,
    timestamp: datetime,
    curriculum: Mapping[str, Any] | None,
    seconds: Mapping[str, float],
    job: Mapping[str, float],
    usage_of_job: PurposeUsage | None = None,
    budget: BudgetConfig | None = None,
) -> EpochRecord:
    """The record of an epoch with at least one trajectory; without any, a guard has ended the run.

    `seconds` are those of the whole `epoch` and, where they are known, of its stages.
    """
    groups, trained = played.collected.trajectories, played.chosen.trajectories
    every, kept = statistics_of(groups), statistics_of(trained)
    if every is None:
        raise ValueError(f"epoch {epoch_number(played.epoch)} has no trajectory, so it has no record")
    counts, usage = tally(played.records), usage_by_purpose(played.records) | (usage_of_job or {})
    price = {} if budget is None else {PRICE: price_of(usage, budget.prices)}
    return EpochRecord(
        epoch=played.epoch,
        phase=phase,
        timestamp=timestamp,
        run_id=played.run_id,
        avg_reward=every.mean,
        min_reward=every.min,
        max_reward=every.max,
        num_trajectories=sum(map(len, groups)),
        num_groups=len(groups),
        filtered_trajectories=sum(map(len, trained)),
        filtered_groups=len(trained),
        filtered_avg_reward=kept.mean if kept else None,
        filtered_min_reward=kept.min if kept else None,
        filtered_max_reward=kept.max if kept else None,
        curriculum_percentile=curriculum["current_percentile"] if curriculum else 1.0,
        curriculum_state=dict(curriculum) if curriculum else None,
        num_rollouts=counts.num_rollouts if played.played else 0,
        played=played.played,
        left_out={str(cause): count for cause, count in counts.causes.most_common()},
        failures=list(counts.failures),
        groups_without_difference=sum(not has_signal(g) for g in groups) if played.played and played.compared else 0,
        seconds=seconds["epoch"],
        examples=success_by_example(played.records),
        usage=usage,
        policy_versions=dict(sum((Counter(record.policy_versions) for record in played.records), Counter())),
        scores_beside=scores_beside(played.records),
        broken_by=broken_by(record for record in played.records if record.rows),
        metrics=epoch_metrics(
            played.records,
            groups if played.played else [],  # the rewards of a file's rows say nothing of the model
            trained,
            seconds=seconds,
            job={**job, **price},
            staleness=played.staleness,
        ),
    )


def submitted_job(ref: TrainingJobRef, played: PlayedEpoch, at: datetime) -> JobRecord:
    """The record of a submitted job; its id is the backend's if the reference names one, else the trainer's."""
    return JobRecord(
        id=ref.job_id or played.chosen.job_id or f"{ref.run_id}-{epoch_number(played.epoch):06d}",
        epoch=played.epoch,
        backend=ref.backend,
        status=JobStatus.PENDING,
        num_groups=len(played.chosen.trajectories),
        num_trajectories=sum(map(len, played.chosen.trajectories)),
        num_rows=len(played.rows),
        began_with=(ref.metadata or {}).get("began_with"),
        submitted_at=at,
    )


def finished_job(job: JobRecord, status: TrainingJobStatus, played: PlayedEpoch, at: datetime) -> JobRecord:
    """The record of the job at its end."""
    version, reported_steps = ((status.metadata or {}).get(name) for name in ("policy_version", "steps"))
    done = status.status is JobStatus.COMPLETED
    metrics = reported_metrics(status)
    submitted_tokens = sum(row.num_sampled for row in played.rows)
    if not played.rows:  # the builder records none; the log probabilities of the answers count them
        trajectories = (trajectory for group in played.chosen.trajectories for trajectory in group)
        answers = (answer for trajectory in trajectories for answer in trajectory.answers)
        submitted_tokens = sum(len(token_logprobs(answer.logprobs) or ()) for answer in answers)
    return job.model_copy(
        update={
            "status": status.status,
            "tokens_trained": count_of(metrics, "trained_tokens", submitted_tokens) if done else 0,
            "policy_version": None if version is None else str(version),
            "metrics": metrics,
            "steps": [finite_numbers(step) for step in reported_steps] if isinstance(reported_steps, list) else [],
            "training": reported if isinstance(reported := (status.metadata or {}).get("training"), dict) else None,
            "message": status.message,
            "finished_at": at,
        }
    )


def reported_metrics(status: TrainingJobStatus) -> dict[str, float]:
    """The finite numbers of `metadata["metrics"]`; a plug-in's backend may send anything."""
    return finite_numbers((status.metadata or {}).get("metrics"))


def reported_usage(status: TrainingJobStatus) -> PurposeUsage:
    """The calls that training made, from `metadata["usage"]`; nothing if it is no such record."""
    with suppress(ValidationError):
        return _USAGE.validate_python((status.metadata or {}).get("usage"))
    return {}


def finite_numbers(metrics: Any) -> dict[str, float]:
    """Those of a mapping; empty for anything else."""
    if not isinstance(metrics, dict):
        return {}
    return {str(name): float(value) for name, value in metrics.items() if isinstance(value, float) or is_finite(value)}
