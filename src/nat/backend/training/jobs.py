"""Training jobs: one at a time on the model thread, each trained once.

An acknowledged job survives a kill: its batch is on disk until a checkpoint has its weights.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from nat.backend.algorithms.registry import Resolved
from nat.backend.export import export_model
from nat.backend.sampling import SamplingEngine
from nat.backend.training.accepted_jobs import ACCEPTED, AcceptedJobs, digest_of
from nat.backend.training.batch import batch_findings
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.elsewhere import ProgramUpdate
from nat.backend.training.job_table import Job, JobTable
from nat.backend.training.learner import Learner, Report
from nat.backend.training.ledger import JobLedger
from nat.backend.training.saving import Saving
from nat.errors import AlgorithmError, TooManyJobs
from nat.wire.ledger import TrainedJob
from nat.wire.serving import EXPORTS, NumberOrAuto
from nat.wire.training import (
    ExportedModel,
    JobState,
    JobStatus,
    ResolvedTraining,
    SavedCheckpoint,
    TrainingConfig,
    TrainingJob,
)

logger = logging.getLogger(__name__)

MAX_WAITING_JOBS = 16
MAX_WAITING_TOKENS = 2**24
"""Of all jobs that wait; they take about a gigabyte."""


class TrainingJobs(JobTable):
    """The jobs of one set of weights; called from any thread, trains on the thread that owns the model."""

    def __init__(
        self,
        engine: SamplingEngine,
        learner: Learner,
        checkpoints: Checkpoints,
        ledger: JobLedger,
        *,
        output_dir: Path,
        save_every: NumberOrAuto = 1,
        runs_programs: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`save_every` counts jobs; with `auto`, checkpoints of large models take a tenth of the time at most.

        Jobs name the program that trains them only if this process `runs_programs`, as its parent's user.
        """
        super().__init__()
        self.loaded = engine.loaded
        self.learner = learner
        self._engine = engine
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._output_dir = output_dir
        self._runs_programs = runs_programs
        self._accepted = AcceptedJobs(checkpoints.folder / ACCEPTED)
        self._saving = Saving(self._save, save_every, clock=clock)
        self._waiting: dict[str, TrainingJob] = {}
        """The batches of the jobs that wait; a canceled job's is dropped at once."""
        self._submitting = threading.Lock()
        self._closing = False

    def take_up(self) -> list[str]:
        """Queue the jobs that were accepted before this process began and are not in the checkpoint's weights.

        Gives the jobs that were trained, but are neither in these weights nor can be trained again.
        """
        self._forget_saved()
        accepted = set(self._accepted)
        lost = [job_id for job_id in self._ledger.removed if job_id not in accepted]
        for job_id in self._accepted:
            if job_id in self._ledger:
                continue
            job = self._accepted.read(job_id)
            if job is None or job.program is not None:  # a folder of others must not start one; the harness sends it
                self._accepted.remove(job_id)
                continue
            try:
                resolved, found = self.learner.resolved(job.config), batch_findings(job, self.loaded)
            except AlgorithmError as error:
                resolved, found = None, [error.message]
            if resolved is None or found:  # the folder may be of others, or the model another one
                logger.warning("job %s, which was accepted, cannot be trained and is forgotten: %s", job_id, found[0])
                self._accepted.remove(job_id)
                continue
            logger.info("training job %s, which was accepted before the backend ended", job_id)
            self._queue(job, resolved, digest_of(job))
        return lost

    def find(self, job_id: str) -> Job | None:
        """Find a job of this process, or one from the ledger."""
        job = super().find(job_id)
        if job is None and (trained := self._ledger.find(job_id)) is not None:
            job = self.add_ended(trained.state, trained.digest)
        return job

    def submit(self, job: TrainingJob) -> JobState:
        """Queue a job; a known id is not queued again.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it; or no programs are run here.
            TooManyJobs: too many jobs wait, or too large ones.
            ValueError: the id is known, but of another batch.

        """
        resolved, digest = self.learner.resolved(job.config), digest_of(job)
        if job.program is not None and not self._runs_programs:
            raise AlgorithmError("this backend runs no programs: only the one that `nat finetune` starts does")
        with self._submitting:
            known = self.find(job.id)
            if known is None:
                self._check_room(job)
                self._accepted.add(job)
                return self._queue(job, resolved, digest)
        if known.digest not in {None, digest}:
            raise ValueError(f"job {job.id!r} is known with another batch or configuration; choose a new id")
        return known.state

    def cancel(self, job_id: str) -> JobState | None:
        state = super().cancel(job_id)
        if state is not None and state.status.final:
            self._waiting.pop(job_id, None)
        return state

    def close(self) -> None:
        """Stop all jobs and the engine, and save weights that no checkpoint has; jobs go on when it starts again."""
        self._closing = True
        self.stop()
        self._engine.close()
        self._saving.close()

    async def export(self, name: str) -> ExportedModel:
        """Write the current weights to the exports folder, between two jobs.

        Raises:
            ExportRefused: something that is not an export has this name there.

        """
        target = self._output_dir.resolve() / EXPORTS / name

        def write() -> ExportedModel:
            adapter = self._export(target)
            return ExportedModel(
                path=str(target),
                adapter_path=None if adapter is None else str(adapter),
                policy_version=self._engine.policy_version,
            )

        return await asyncio.wrap_future(self._engine.run_exclusive(write))

    def _export(self, target: Path) -> Path | None:
        return export_model(self.loaded, target)

    async def keep_best(self) -> SavedCheckpoint:
        """Keep a checkpoint of the current weights as the best so far, between two jobs."""

        def keep() -> SavedCheckpoint:
            step = self.learner.step
            self._saving.finish()
            if self._checkpoints.find(step) is None:
                self._saving.save()
            path = self._checkpoints.keep_best(step)
            return SavedCheckpoint(path=str(path.resolve()), policy_version=self._engine.policy_version)

        return await asyncio.wrap_future(self._engine.run_exclusive(keep))

    async def begin_phase(self, config: TrainingConfig) -> ResolvedTraining:
        """Train with these settings from here on, with nothing left of the algorithm before, between two jobs.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it.

        """
        resolved = self.learner.resolved(config)

        def begin() -> None:
            self._saving.finish()
            self.learner.begin_phase(resolved)
            self._saving.save()

        await asyncio.wrap_future(self._engine.run_exclusive(begin))
        return resolved.report()

    def _check_room(self, request: TrainingJob) -> None:
        waiting = list(self._waiting.values())
        tokens = sum(map(_num_tokens, [*waiting, request]))
        if waiting and (len(waiting) >= MAX_WAITING_JOBS or tokens > MAX_WAITING_TOKENS):
            raise TooManyJobs(
                f"{len(waiting)} training jobs wait, with this one of {tokens} tokens; at most {MAX_WAITING_JOBS} jobs "
                f"of together {MAX_WAITING_TOKENS} tokens may wait",
                hint="submit it again when one of them has ended",
            )

    def _queue(self, request: TrainingJob, resolved: Resolved, digest: str) -> JobState:
        job = self.add(request.id, digest)
        job.ending.add_done_callback(lambda ending: self._ended(ending.result()))
        self._waiting[request.id] = request
        self._engine.run_exclusive(lambda: self._begin(job, resolved))
        return job.state

    def _ended(self, state: JobState) -> None:
        if state.status is not JobStatus.COMPLETED and state.id not in self._ledger and not self._closing:
            self._accepted.remove(state.id)  # of one in the ledger, only the checkpoint has failed

    def _save(self, done: list[JobState]) -> None:
        """Save the weights, which all jobs of the ledger made: the next one is trained after this has ended."""
        self._checkpoints.save(self.loaded, self.learner, done)
        self._forget_saved()

    def _forget_saved(self) -> None:
        """Drop the batches that would not be trained again if the newest checkpoint were damaged."""
        step = self._checkpoints.fallback_step()
        for job_id in self._accepted:
            if (trained := self._ledger.find(job_id)) is not None and trained.step <= step:
                self._accepted.remove(job_id)

    def _begin(self, job: Job, resolved: Resolved) -> None:
        request = self._waiting.pop(job.state.id, None)
        if request is not None:  # it was not canceled
            job.run(lambda report: self._train(request, resolved, job, report))

    def _train(self, request: TrainingJob, resolved: Resolved, job: Job, report: Report) -> JobState:
        self._saving.finish()
        steps: list[dict[str, float]] = []

        update = partial(self.learner.update, request.groups, resolved, on_step=steps.append)
        if request.program is not None:
            program = ProgramUpdate(request, request.program, resolved, self.loaded, self._output_dir)
            update = partial(update, program=program)
        with self._engine.updating():
            metrics = update(report=report, compared=self._engine.policy_version if request.stale else None)
            self._engine.serve(f"{self._engine.policy_version.rpartition('@')[0]}@{self.learner.step}")
        done = job.completed(metrics, self._engine.policy_version)
        done = done.model_copy(update={"training": resolved.report(), "steps": steps})
        self._ledger.add(TrainedJob(step=self.learner.step, digest=job.digest, state=done))
        self._saving.completed(done)
        return done


def _num_tokens(job: TrainingJob) -> int:
    return sum(len(row.token_ids) for group in job.groups for rollout in group.rollouts for row in rollout.rows)
