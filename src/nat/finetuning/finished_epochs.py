"""What the journal says of finished epochs to the process that goes on with a run."""

from nat.data_models.finetuning import TrainingJobRef, TrainingJobStatus, TrainingStatusEnum
from nat.runs.journal import Journal
from nat.runs.records import JobRecord

NOTHING_SUBMITTED = "no group had a difference in reward, so nothing was submitted"


def statuses_of(journal: Journal, run_id: str, first: int, end: int | None = None) -> list[TrainingJobStatus]:
    """The final status of each finished epoch from `first` on, before `end`."""
    jobs = {job.epoch: job for job in journal.jobs()}
    numbers = [epoch.epoch for epoch in journal.each_epoch(first) if end is None or epoch.epoch < end]
    return [_status(jobs[n], run_id) if n in jobs else nothing_submitted(run_id) for n in numbers]


def nothing_submitted(run_id: str) -> TrainingJobStatus:
    """The status of an epoch without a job."""
    done = TrainingStatusEnum.COMPLETED
    return TrainingJobStatus(run_id=run_id, backend="none", status=done, message=NOTHING_SUBMITTED)


def seconds_of(journal: Journal) -> float:
    """Seconds that the finished epochs and validations took."""
    epochs = sum(record.seconds for record in journal.each_epoch())
    return epochs + sum(record.seconds for record in journal.each_validation())


def _status(job: JobRecord, run_id: str) -> TrainingJobStatus:
    ref = TrainingJobRef(run_id=run_id, backend=job.backend, metadata={"job_id": job.id})
    return ref.reported(job.status, message=job.message, metrics=job.metrics, policy_version=job.policy_version)
