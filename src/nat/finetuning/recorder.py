"""Record what a trainer does: in the journal, in files, in the log and in the progress display."""

import gc
import logging
from collections.abc import Sequence

from nat.data_models.finetuning import TrainingJobRef, TrainingJobStatus, TrainingStatusEnum
from nat.finetuning.epoch import PlayedEpoch, finished_job, submitted_job
from nat.finetuning.run_context import RunContext
from nat.finetuning.sampling import sampling_notes
from nat.heap import return_free_pages
from nat.runs.folder import append_metrics, doublings, files_due, write_rollouts
from nat.runs.records import EpochRecord, Finding, JobRecord, Phase, epoch_number
from nat.runs.rollouts import RolloutRecord, tally

logger = logging.getLogger(__name__)

EPOCHS_PER_PLOT = 10
"""Epochs between plots, each of which takes a second; doubled at epoch 200, and so on. A last plot is drawn at the
end."""
EPOCHS_PER_COLLECTION = 10


class Recorder:
    """Records a run; keeps the alarms and notes that were raised."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._alarmed: set[str] = set()
        self._noted: set[str] = set()

    def rollouts(self, epoch: int, records: Sequence[RolloutRecord]) -> None:
        """Record the rollouts of an epoch, before a guard may end the run because of them."""
        run, counts = self._run, tally(records)
        run.journal.record_rollouts(Phase.TRAIN, epoch, records)
        write_rollouts(run.journal, Phase.TRAIN, epoch)
        run.warn_of_failures(counts.failures, f"Epoch {epoch_number(epoch)}", counts.num_rollouts)
        for name, text in sampling_notes(records).items():
            if name not in self._noted:
                self._noted.add(name)
                run.warn(f"Epoch {epoch_number(epoch)}: {text}")

    def job_submitted(self, played: PlayedEpoch, ref: TrainingJobRef) -> JobRecord:
        job = submitted_job(ref, played, self._run.now())
        self._run.journal.record_job(job)
        self._run.progress.training_started(job.num_groups, job.num_trajectories)
        logger.info("Submitted %d trajectories in %d groups for training", job.num_trajectories, job.num_groups)
        return job

    def job_finished(self, submitted: JobRecord, played: PlayedEpoch, status: TrainingJobStatus) -> JobRecord:
        job = finished_job(submitted, status, played, self._run.now())
        self._run.journal.record_job(job)
        self._run.progress.training_finished(job)
        if status.status is TrainingStatusEnum.COMPLETED:
            logger.info("Training %s completed successfully.", status.run_id)
        return job

    async def epoch_finished(self, record: EpochRecord) -> None:
        """Record an epoch. Files with all epochs are written less often as they grow, which bounds the cost."""
        run, count = self._run, record.epoch + 1
        run.journal.record_epoch(record)
        if files_due(count):
            run.write_files()
        else:
            append_metrics(run.journal.run_dir, record)
        run.progress.epoch_finished(record)
        if count % EPOCHS_PER_COLLECTION == 0:
            _free_memory()
        if count % (EPOCHS_PER_PLOT * doublings(count // 100)) == 0:
            await run.draw()

    def alarms(self, epoch: int, found: Sequence[Finding]) -> None:
        """Warn of each finding once, and again only after an epoch without it."""
        for finding in found:
            if finding.cause not in self._alarmed:
                self._run.warn(f"Epoch {epoch_number(epoch)}: {finding}")
                self._run.explained.add(finding.cause)
        self._alarmed = {finding.cause for finding in found}


def _free_memory() -> None:
    """Collect reference cycles, and return free pages to the system.

    Commands let the collector run seldom, so it would not find the hundred objects in cycles that an epoch leaves. They
    lie between objects that stay.
    """
    gc.collect()
    return_free_pages()
