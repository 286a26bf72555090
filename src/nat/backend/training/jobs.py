"""Training jobs: one at a time on the model thread, each trained once, with its state and its end.

With `save_every` of 1, a job is completed when its checkpoint is on disk, so an acknowledged job survives a kill.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from nat.backend.algorithms.registry import Resolved
from nat.backend.export import export_model
from nat.backend.failures import explained
from nat.backend.sampling import SamplingEngine
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.learner import Learner, OnStep, Report, resolved_for
from nat.backend.training.ledger import JobLedger, TrainedJob
from nat.backend.training.saving import Saving
from nat.backend.training.weight_pair import WeightPair
from nat.errors import EngineFailed, TooManyJobs, TrainingFailed, UpdateCanceled, UpdateRejected
from nat.wire.serving import EXPORTS, SaveEvery
from nat.wire.training import (
    ExportedModel,
    JobFailure,
    JobState,
    JobStatus,
    ResolvedTraining,
    SavedCheckpoint,
    TrainingConfig,
    TrainingJob,
)

logger = logging.getLogger(__name__)

KEPT_JOBS = 100
"""Ended jobs that a table keeps."""
MAX_WAITING_JOBS = 16
MAX_WAITING_TOKENS = 2**24
"""Of all jobs that wait; they take about a gigabyte."""
Work = Callable[[Report], JobState]
"""Trains and saves; returns the state of the completed job."""


@dataclass
class Job:
    """A job: its current state, and how to stop it and wait for it."""

    state: JobState
    digest: str | None = None
    """Digest of the request; None for a job that only a checkpoint knows."""
    finished: Future[None] = field(default_factory=Future)
    _canceled: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, work: Work) -> None:
        """Do the work on the model thread; a failure becomes the job's state."""
        if not self._start():
            return
        try:
            done = work(self._report)
        except UpdateCanceled:
            self._become(JobStatus.CANCELED)
        except (TrainingFailed, EngineFailed) as error:
            logger.warning("job %s failed: %s", self.state.id, error)
            self._become(JobStatus.FAILED, failure=_failure(error))
        except Exception as error:  # the boundary of a job: its failure becomes its state
            logger.exception("job %s failed", self.state.id)
            self._become(JobStatus.FAILED, failure=_internal(error))
        else:
            self._enter(done)

    def stop(self) -> None:
        """Cancel the job: at once if it waits, at its next micro-batch if it runs."""
        with self._lock:
            self._canceled.set()
            if self.state.status is JobStatus.PENDING:
                self._become(JobStatus.CANCELED)

    def completed(self, metrics: dict[str, float], policy_version: str) -> JobState:
        """The state of the job once it is completed."""
        done = {"status": JobStatus.COMPLETED, "progress": 100.0, "metrics": metrics, "policy_version": policy_version}
        return self.state.model_copy(update=done)

    def _start(self) -> bool:
        """Begin, unless the job was canceled while it waited."""
        with self._lock:
            if self.state.status is JobStatus.PENDING:
                self._become(JobStatus.RUNNING)
            return self.state.status is JobStatus.RUNNING

    def _report(self, percent: float) -> None:
        if self._canceled.is_set():
            raise UpdateCanceled(f"job {self.state.id} was canceled")
        self.state = self.state.model_copy(update={"progress": min(percent, 100.0)})

    def _become(self, status: JobStatus, *, failure: JobFailure | None = None) -> None:
        self._enter(self.state.model_copy(update={"status": status, "failure": failure}))

    def _enter(self, state: JobState) -> None:
        """Change the state; a final one wakes the waiting callers."""
        self.state = state
        if state.status.final:
            self.finished.set_result(None)


class JobTable:
    """The jobs of one backend that have not ended, and the newest that have; safe from any thread."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self.ended = Counter({status: 0 for status in JobStatus if status.final})
        """Jobs that this process ran, by how they ended."""

    def add_ended(self, state: JobState, digest: str | None = None) -> Job:
        """Add a job that ended earlier."""
        job = Job(state, digest)
        job.finished.set_result(None)
        return self._keep(job)

    def add(self, job_id: str, digest: str | None = None) -> Job:
        """Add a new job, which waits for its turn."""
        job = Job(JobState(id=job_id, status=JobStatus.PENDING), digest)
        job.finished.add_done_callback(lambda _: self.ended.update([job.state.status]))
        return self._keep(job)

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def get(self, job_id: str) -> JobState | None:
        job = self.find(job_id)
        return None if job is None else job.state

    async def wait(self, job_id: str, seconds: float) -> JobState | None:
        """Give the state once it is final, at the latest after `seconds`; None for an unknown job."""
        job = self.find(job_id)
        if job is None:
            return None
        await asyncio.wait([asyncio.wrap_future(job.finished)], timeout=seconds)
        return job.state

    def cancel(self, job_id: str) -> JobState | None:
        """Cancel a job at its next micro-batch; one that has ended does not change."""
        job = self.find(job_id)
        if job is None:
            return None
        job.stop()
        return job.state

    def stop(self) -> None:
        """Cancel all jobs that have not ended."""
        for job in list(self._jobs.values()):
            job.stop()

    def _keep(self, job: Job) -> Job:
        """Add the job, and remove the oldest of those that have ended."""
        self._jobs[job.state.id] = job
        ended = [job_id for job_id, known in list(self._jobs.items()) if known.state.status.final]
        for job_id in ended[:-KEPT_JOBS]:
            del self._jobs[job_id]
        return job


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
        save_every: SaveEvery = 1,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`save_every` counts jobs; with `auto`, checkpoints of large models take a tenth of the time at most."""
        super().__init__()
        self.loaded = engine.loaded
        self.learner = learner
        self._engine = engine
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._output_dir = output_dir
        self._saving = Saving(lambda done: checkpoints.save(self.loaded, learner, done), save_every, clock=clock)
        self._pair: WeightPair | None = None
        self._waiting: dict[str, TrainingJob] = {}
        """The batches of the jobs that wait; a canceled job's is dropped at once."""
        self._submitting = threading.Lock()

    def find(self, job_id: str) -> Job | None:
        """Find a job of this process, or one from the ledger."""
        job = super().find(job_id)
        if job is None and (trained := self._ledger.find(job_id)) is not None:
            job = self.add_ended(trained.state, trained.digest)
        return job

    def submit(self, job: TrainingJob) -> JobState:
        """Queue a job; a known id is not queued again.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it.
            TooManyJobs: too many jobs wait, or too large ones.
            ValueError: the id is known, but of another batch.

        """
        resolved, digest = resolved_for(job.config, self.loaded), _digest(job)
        with self._submitting:
            known = self.find(job.id)
            if known is None:
                self._check_room(job)
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
        """Stop all jobs and the engine, and save weights that no checkpoint has."""
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
            adapter = export_model(self.loaded, target)
            return ExportedModel(
                path=str(target),
                adapter_path=None if adapter is None else str(adapter),
                policy_version=self._engine.policy_version,
            )

        return await asyncio.wrap_future(self._engine.run_exclusive(write))

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
        resolved = resolved_for(config, self.loaded)

        def begin() -> None:
            self._saving.finish()
            self.learner.begin_phase(resolved)

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
        self._waiting[request.id] = request
        self._engine.run_exclusive(lambda: self._begin(job, resolved), beside=request.serve_meanwhile)
        return job.state

    def _begin(self, job: Job, resolved: Resolved) -> None:
        request = self._waiting.pop(job.state.id, None)
        if request is not None:  # it was not canceled
            job.run(lambda report: self._train(request, resolved, job, report))

    def _train(self, request: TrainingJob, resolved: Resolved, job: Job, report: Report) -> JobState:
        self._saving.finish()
        steps: list[dict[str, float]] = []
        with self._engine.updating():
            if request.serve_meanwhile:
                metrics = self._update_beside(request, resolved, report, steps.append)
            else:
                self._pair = None
                report = self._sharing(report)
                metrics = self.learner.update(request.groups, resolved, report=report, on_step=steps.append)
            self._engine.serve(f"{self._engine.policy_version.rpartition('@')[0]}@{self.learner.step}")
        if self._pair is not None:
            self._pair.version = self._engine.policy_version
        done = job.completed(metrics, self._engine.policy_version)
        done = done.model_copy(update={"training": resolved.report(), "steps": steps})
        self._ledger.add(TrainedJob(step=self.learner.step, digest=job.digest, state=done))
        self._saving.completed(done)
        return done

    def _update_beside(
        self, request: TrainingJob, resolved: Resolved, report: Report, on_step: OnStep
    ) -> dict[str, float]:
        """Train a second copy of the weights, and answer requests with the first one between micro-batches."""
        if self._pair is None:
            self._pair = WeightPair(
                self.loaded.trainable_parameters(),
                version=self._engine.policy_version,
                finish_begun=self._engine.finish_begun,
            )
        pair = self._pair

        def answer_requests(percent: float) -> None:
            report(percent)
            with pair.serving():
                self._engine.sample()

        return self.learner.update(request.groups, resolved, report=answer_requests, on_step=on_step, pair=pair)

    def _sharing(self, report: Report) -> Report:
        def reported(percent: float) -> None:
            report(percent)
            self._engine.share_cores()

        return reported


def _digest(job: TrainingJob) -> str:
    """Digest of a request, rollout by rollout, so that other threads may run in between."""
    digest = sha256(job.model_dump_json(exclude={"groups"}).encode())
    for group in job.groups:
        digest.update(group.model_dump_json(exclude={"rollouts"}).encode())
        for rollout in group.rollouts:
            digest.update(rollout.model_dump_json().encode())
    return digest.hexdigest()


def _num_tokens(job: TrainingJob) -> int:
    return sum(len(row.token_ids) for group in job.groups for rollout in group.rollouts for row in rollout.rows)


def _failure(error: TrainingFailed | EngineFailed) -> JobFailure:
    kind = error.kind if isinstance(error, UpdateRejected) else "internal"
    return JobFailure.model_validate({"type": kind, "message": error.message, "hint": error.hint or ""})


def _internal(error: Exception) -> JobFailure:
    found = explained(error)
    return JobFailure(type="internal", message=found.message, hint=found.hint)
