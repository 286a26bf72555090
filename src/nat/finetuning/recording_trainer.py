"""What the trainers of this project have in common: each joins a run, records what it does, and goes on from it."""

import gc
import logging
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import Any, ClassVar
from uuid import uuid4

import yaml

from nat.data_models.finetuning import (
    FinetuneConfig,
    TrainerConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
)
from nat.finetuning.epoch import PlayedEpoch, finished_job, submitted_job
from nat.finetuning.events import RolloutsPlayed
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import check_ready
from nat.finetuning.run_context import RunContext, current_run, open_run
from nat.finetuning.sampling import sampling_notes
from nat.runs.folder import doublings
from nat.runs.journal import Journal
from nat.runs.records import EpochRecord, Finding, JobRecord, Phase, RunState, epoch_number
from nat.runs.rollouts import RolloutRecord, tally
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)


class RecordingTrainer(Trainer):
    """Records rollouts, jobs and epochs by itself; of other trainers, the run watches the calls and does it."""

    title: ClassVar[str] = "Trainer"
    """Name in the log."""
    run_prefix: ClassVar[str] = ""
    """If set, the run's name in the log and in jobs begins with it; else that name is the one of the run's folder."""

    def __init__(self, trainer_config: TrainerConfig, **kwargs: Any) -> None:
        super().__init__(trainer_config, **kwargs)
        self._context: RunContext | None = None
        self._run_id = f"{self.run_prefix}{uuid4().hex[:8]}" if self.run_prefix else None
        self._resources = ExitStack()
        self._statuses: list[TrainingJobStatus] = []

    @property
    def context(self) -> RunContext:
        """The run that this trainer was initialized in."""
        return check_ready(self, self._context)

    @property
    def run_id(self) -> str:
        """The run's name in the log and in jobs; folders have other names, which sort by time."""
        return self._run_id or self.context.run_id

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Join the current run, or open one if there is none; called for each phase that this trainer trains."""
        await super().initialize(run_config)
        text = yaml.safe_dump(run_config.model_dump(mode="json", exclude={"run_configuration"}))
        self._context = current_run()
        if self._context is None:
            self._context = self._resources.enter_context(open_run(run_config, text))
            self._resources.callback(self._end_own_run)
        if self.run_prefix:  # the same when the run goes on, so that a server finds its jobs
            self._run_id = f"{self.run_prefix}{sha256(self._context.run_id.encode()).hexdigest()[:8]}"
        logger.info("%s initialized with run ID: %s", self.title, self.run_id)

    async def cleanup(self) -> None:
        """Close the run that this trainer opened for itself, if it did."""
        self._resources.close()

    def _end_own_run(self) -> None:
        done = [status.status is TrainingStatusEnum.COMPLETED for status in self._statuses]
        self.context.end(RunState.COMPLETED if done and all(done) else RunState.FAILED)


EPOCHS_PER_PLOT = 10
"""Epochs between plots, each of which takes a second; doubled at epoch 200, and so on. A last plot is drawn at the
end."""
EPOCHS_PER_COLLECTION = 10


def record_rollouts(run: RunContext, epoch: int, records: Sequence[RolloutRecord]) -> None:
    """Record the rollouts of an epoch, before a guard may end the run because of them."""
    counts, noted = tally(records), run.log.state.noted
    run.append(RolloutsPlayed(Phase.TRAIN, epoch, records))
    run.warn_of_failures(counts.failures, f"Epoch {epoch_number(epoch)}", counts.num_rollouts)
    for name, text in sampling_notes(records).items():
        if name not in noted:
            run.warn(f"Epoch {epoch_number(epoch)}: {text}")


def record_submitted(run: RunContext, played: PlayedEpoch, ref: TrainingJobRef) -> JobRecord:
    """Record the job that trains an epoch."""
    job = submitted_job(ref, played, run.now())
    run.append(job)
    logger.info("Submitted %d trajectories in %d groups for training", job.num_trajectories, job.num_groups)
    return job


def record_finished(run: RunContext, submitted: JobRecord, played: PlayedEpoch, status: TrainingJobStatus) -> JobRecord:
    """Record how the job has ended."""
    job = finished_job(submitted, status, played, run.now())
    if status.status is JobStatus.COMPLETED:
        logger.info("Training %s completed successfully.", status.run_id)
    run.append(job)
    return job


async def record_epoch(run: RunContext, record: EpochRecord) -> None:
    """Record an epoch, and draw the plot if it is due."""
    run.append(record)
    count = record.epoch + 1
    if count % EPOCHS_PER_COLLECTION == 0:
        gc.collect()  # commands let the collector run seldom, and an epoch leaves a hundred objects in cycles
    if count % (EPOCHS_PER_PLOT * doublings(count // 100)) == 0:
        await run.draw()


def warn_of(run: RunContext, epoch: int, found: Sequence[Finding], *, before: Collection[str]) -> None:
    """Warn of each finding once, and again only after an epoch without it: `before` has the last epoch's causes."""
    for finding in found:
        if finding.cause not in before:
            run.warn(f"Epoch {epoch_number(epoch)}: {finding}")
            run.explained.add(finding.cause)


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
