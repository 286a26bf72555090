"""Training jobs: one at a time on the model thread, each trained once, and remembered beside the checkpoints.

A job is told to be completed only when its checkpoint is on disk, so what was acknowledged survives a kill.
"""

import asyncio
from hashlib import sha256
from pathlib import Path

from nat.backend.algorithms.registry import resolve
from nat.backend.export import export_model
from nat.backend.inference.worker import Worker
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.job import Job, JobTable
from nat.backend.training.learner import Learner, Report
from nat.backend.training.ledger import JobLedger, TrainedJob
from nat.wire.serving import EXPORTS
from nat.wire.training import ExportedModel, JobState, SavedCheckpoint, TrainingJob


class TrainingJobs(JobTable):
    """The jobs of one set of weights; called from the event loop, trains on the worker's thread."""

    def __init__(
        self,
        worker: Worker,
        learner: Learner,
        checkpoints: Checkpoints,
        ledger: JobLedger,
        *,
        output_dir: Path,
        save_every: int = 1,
    ) -> None:
        super().__init__()
        self.loaded = worker.loaded
        self._worker = worker
        self._learner = learner
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._output_dir = output_dir
        self._save_every = save_every
        self._unsaved: list[JobState] = []

    def find(self, job_id: str) -> Job | None:
        """A job of this process, or one that is part of the weights."""
        job = super().find(job_id)
        if job is None and (trained := self._ledger.find(job_id)) is not None:
            job = self.know(trained.state, trained.digest)
        return job

    def submit(self, job: TrainingJob) -> JobState:
        """Queue a job; one whose id is known is not queued again.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it.
            ValueError: the id is known, but of another batch.

        """
        resolve(job.config)
        digest = sha256(job.model_dump_json().encode()).hexdigest()
        known = self.find(job.id)
        if known is None:
            return self._queue(job, digest)
        if known.digest not in {None, digest}:
            raise ValueError(f"job {job.id!r} is known with another batch or configuration; choose a new id")
        return known.state

    def close(self) -> None:
        """Stop all jobs and the worker, and save what no checkpoint holds yet."""
        self.stop()
        self._worker.close()
        if self._unsaved:
            self._save()

    async def export(self, name: str) -> ExportedModel:
        """Write the current weights to the folder of exports, between two jobs.

        Raises:
            ExportRefused: something that is not an export has this name there.

        """
        target = self._output_dir.resolve() / EXPORTS / name

        def write() -> ExportedModel:
            adapter = export_model(self.loaded, target)
            return ExportedModel(
                path=str(target),
                adapter_path=None if adapter is None else str(adapter),
                policy_version=self._worker.policy_version,
            )

        return await asyncio.wrap_future(self._worker.run_exclusive(write))

    async def keep_best(self) -> SavedCheckpoint:
        """Keep a checkpoint of the current weights as the best so far, between two jobs."""

        def keep() -> SavedCheckpoint:
            step = self._learner.step
            if self._checkpoints.find(step) is None:
                self._save()
            path = self._checkpoints.keep_best(step)
            return SavedCheckpoint(path=str(path.resolve()), policy_version=self._worker.policy_version)

        return await asyncio.wrap_future(self._worker.run_exclusive(keep))

    def _queue(self, asked: TrainingJob, digest: str) -> JobState:
        job = self.add(asked.id, digest)
        self._worker.run_exclusive(lambda: job.run(lambda report: self._train(asked, job, report)))
        return job.state

    def _train(self, asked: TrainingJob, job: Job, report: Report) -> JobState:
        metrics = self._learner.update(asked.groups, asked.config, report=report)
        done = job.completed(metrics, self._new_version())
        done = done.model_copy(update={"training": resolve(asked.config).report()})
        self._ledger.add(TrainedJob(step=self._learner.step, digest=job.digest, state=done))
        self._unsaved.append(done)
        if len(self._unsaved) >= self._save_every:
            self._save()
        return done

    def _save(self) -> None:
        self._checkpoints.save(self.loaded, self._learner, self._unsaved[-1:])
        self._unsaved.clear()

    def _new_version(self) -> str:
        name = self._worker.policy_version.rpartition("@")[0]
        self._worker.engine.policy_version = f"{name}@{self._learner.step}"
        return self._worker.policy_version
