"""Record what a trainer does in the log of its run, and warn of what its rollouts and epochs show."""

import gc
import logging
from collections.abc import Collection, Sequence

from nat.data_models.finetuning import TrainingJobRef, TrainingJobStatus
from nat.finetuning.epoch import PlayedEpoch, finished_job, submitted_job
from nat.finetuning.events import RolloutsPlayed
from nat.finetuning.run_context import RunContext
from nat.finetuning.sampling import sampling_notes
from nat.runs.folder import doublings
from nat.runs.records import EpochRecord, Finding, JobRecord, Phase, epoch_number
from nat.runs.rollouts import RolloutRecord, tally
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

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
