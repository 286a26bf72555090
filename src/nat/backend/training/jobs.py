"""Training jobs: one at a time on the model thread, each trained once.

The harness keeps the batches in the folder of its run. A checkpoint names the last job that its weights contain, so
that after a kill the harness sends what is newer again. Checkpoints are written while requests are answered; the next
update waits.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from nat.backend.algorithms.registry import Resolved
from nat.backend.checkpoint_folder import TrainedJob
from nat.backend.export import export_model
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.job_table import Job, JobTable
from nat.backend.training.learner import Elsewhere, OnStep, Report
from nat.backend.training.program import ProgramUpdate
from nat.errors import AlgorithmError
from nat.wire.serving import EXPORTS
from nat.wire.training import (
    LEFT_OUT,
    ExportedModel,
    JobState,
    ResolvedTraining,
    SavedCheckpoint,
    SavedJobs,
    TrainingConfig,
    TrainingGroup,
    TrainingJob,
)

logger = logging.getLogger(__name__)


class Trainer(Protocol):
    """What updates the weights: the learner of this process, or one whose weights are on a server."""

    step: int
    first_step: int

    def resolved(self, config: TrainingConfig) -> Resolved:
        """The settings that an update uses."""

    def begin_phase(self, resolved: Resolved) -> None:
        """Go on with another algorithm."""

    def update(
        self,
        groups: list[TrainingGroup],
        resolved: Resolved,
        *,
        report: Report,
        on_step: OnStep,
        compared: str | None,
        program: Elsewhere | None,
    ) -> dict[str, float]:
        """Train on one batch and give its metrics, or raise and leave the weights as they were."""


class TrainingJobs(JobTable):
    """The jobs of one set of weights; called from any thread, trains on the thread that owns the model."""

    def __init__(
        self,
        engine: SamplingEngine,
        learner: Trainer,
        checkpoints: Checkpoints,
        *,
        output_dir: Path,
        save_every: int = 1,
        last: TrainedJob | None = None,
        runs_programs: bool = False,
        export: Callable[[LoadedModel, Path], Path | None] = export_model,
    ) -> None:
        """`save_every` counts jobs, the `last` of which the weights contain.

        Jobs name the program that trains them only if this process `runs_programs`, as its parent's user. `export`
        writes the model as a folder, and gives that of the adapter, if it has one.
        """
        super().__init__()
        self.loaded = engine.loaded
        self.learner = learner
        self._engine = engine
        self._checkpoints = checkpoints
        self._output_dir = output_dir
        self._runs_programs = runs_programs
        self._export = export
        self._save_every = save_every
        self._last = last
        self._unsaved = 0
        """Jobs that no checkpoint has."""
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._waiting: dict[str, TrainingJob] = {}
        """The batches of the jobs that wait; a canceled job's is dropped at once."""
        self._submitting = threading.Lock()
        if last is not None:
            self.add_ended(last.state, last.digest)

    def submit(self, job: TrainingJob) -> JobState:
        """Queue a job; a known id is not queued again.

        Raises:
            AlgorithmError: the settings name no algorithm, or contradict it; or no programs are run here.
            ValueError: the id is known, but of another batch.

        """
        resolved, digest = self.learner.resolved(job.config), _digest_of(job)
        if job.program is not None and not self._runs_programs:
            raise AlgorithmError("this backend runs no programs: only the one that `nat finetune` starts does")
        with self._submitting:
            known = self.find(job.id)
            if known is None:
                queued = self.add(job.id, digest)
                self._waiting[job.id] = job
                self._engine.run_exclusive(lambda: self._begin(queued, resolved))
                return queued.state
        if known.digest != digest:
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
        with self._writer:
            self._await_checkpoint()
            if self._unsaved:
                self._save()

    def saved(self) -> SavedJobs:
        """The last jobs of the newest checkpoint, and of the one that a restart takes if that is damaged."""
        newest, fallback = self._checkpoints.newest_jobs()
        return SavedJobs(newest=newest and newest.state.id, fallback=fallback and fallback.state.id)

    async def export(self, name: str) -> ExportedModel:
        """Write the current weights to the exports folder, between two jobs."""
        target = self._output_dir.resolve() / EXPORTS / name

        def write() -> ExportedModel:
            self._await_checkpoint()
            adapter = self._export(self.loaded, target)
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
            self._await_checkpoint()
            if self._checkpoints.find(step) is None:
                self._save()
            path = self._checkpoints.keep_best(step)
            return SavedCheckpoint(path=str(path.resolve()), policy_version=self._engine.policy_version)

        return await asyncio.wrap_future(self._engine.run_exclusive(keep))

    async def begin_phase(self, config: TrainingConfig) -> ResolvedTraining:
        """Train with these settings from here on, with nothing left of the algorithm before, between two jobs."""
        resolved = self.learner.resolved(config)

        def begin() -> None:
            self._await_checkpoint()
            self.learner.begin_phase(resolved)
            self._save()

        await asyncio.wrap_future(self._engine.run_exclusive(begin))
        return resolved.report()

    def _begin(self, job: Job, resolved: Resolved) -> None:
        request = self._waiting.pop(job.state.id, None)
        if request is not None:  # it was not canceled
            job.run(lambda report: self._train(request, resolved, job, report))

    def _train(self, request: TrainingJob, resolved: Resolved, job: Job, report: Report) -> JobState:
        self._await_checkpoint()
        steps: list[dict[str, float]] = []
        program = None
        if request.program is not None:
            program = ProgramUpdate(request, request.program, resolved, self.loaded, self._output_dir)
        with self._engine.updating():
            metrics = self.learner.update(
                request.groups,
                resolved,
                report=report,
                on_step=steps.append,
                compared=self._engine.policy_version if request.stale else None,
                program=program,
            )
            self._engine.serve(f"{self._engine.policy_version.rpartition('@')[0]}@{self.learner.step}")
        metrics |= {LEFT_OUT + lost.replace(" ", "_"): 1.0 for lost in self.loaded.tokenizer.lost}
        done = job.completed(metrics, self._engine.policy_version)
        done = done.model_copy(update={"training": resolved.report(), "steps": steps})
        self._last = TrainedJob(state=done, digest=job.digest)
        self._unsaved += 1
        if self._unsaved >= self._save_every:
            self._writing = self._writer.submit(self._save)
        return done

    def _save(self) -> None:
        self._checkpoints.save(self.loaded, self.learner, self._last)
        self._unsaved = 0

    def _await_checkpoint(self) -> None:
        """Wait until the checkpoint is written, if one is; what failed is raised here, and it is written anew later."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _digest_of(job: TrainingJob) -> str:
    """SHA-256 of a job's id, settings and batch, group by group, so that other threads may run in between.

    Settings that are not set are left out, as the client does: two that differ there may train alike.
    """
    digest = sha256(job.model_dump_json(exclude={"groups"}, exclude_unset=True).encode())
    for group in job.groups:
        digest.update(group.model_dump_json().encode())
    return digest.hexdigest()
