"""Training jobs: one at a time on the model thread, each trained once, and remembered in the checkpoint.

A job is told to be completed only when its checkpoint is on disk, so what was acknowledged survives a kill.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from nat.backend.checkpoints import Checkpoints
from nat.backend.export import export_model
from nat.backend.inference.worker import Worker
from nat.backend.training.learner import Learner
from nat.errors import TrainingFailed, UpdateCanceled, UpdateRejected
from nat.wire.training import ExportedModel, JobFailure, JobState, JobStatus, TrainingJob

logger = logging.getLogger(__name__)


@dataclass
class _Entry:
    """A job's state as it goes, and what it takes to stop it or to wait for it."""

    state: JobState
    digest: str | None = None
    """Of the request; None for a job known from a checkpoint."""
    cancel: threading.Event = field(default_factory=threading.Event)
    finished: Future[None] = field(default_factory=Future)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def become(self, status: JobStatus, **values: object) -> None:
        """Change the state; a final one wakes those who wait for it."""
        self.state = self.state.model_copy(update={"status": status, **values})
        if status.final:
            self.finished.set_result(None)

    def start(self) -> bool:
        """Begin, unless someone canceled the job while it waited."""
        with self.lock:
            if self.state.status is JobStatus.PENDING:
                self.become(JobStatus.RUNNING)
            return self.state.status is JobStatus.RUNNING

    def stop(self) -> None:
        """Cancel what waits at once, and what runs at its next micro-batch."""
        with self.lock:
            self.cancel.set()
            if self.state.status is JobStatus.PENDING:
                self.become(JobStatus.CANCELED)


class TrainingJobs:
    """The jobs of one backend; called from the event loop, trains on the worker's thread."""

    def __init__(
        self,
        worker: Worker,
        learner: Learner,
        checkpoints: Checkpoints,
        *,
        output_dir: Path,
        save_every: int = 1,
        known: Iterable[JobState] = (),
    ) -> None:
        self.loaded = worker.engine.loaded
        self._worker = worker
        self._learner = learner
        self._checkpoints = checkpoints
        self._output_dir = output_dir
        self._save_every = save_every
        self._entries = {state.id: _Entry(state) for state in known}
        for entry in self._entries.values():
            entry.finished.set_result(None)
        self._unsaved = 0

    def submit(self, job: TrainingJob) -> JobState:
        """Queue a job; one whose id is known is not queued again.

        Raises:
            ValueError: the id is known, but of another batch.

        """
        digest = sha256(job.model_dump_json().encode()).hexdigest()
        entry = self._entries.get(job.id)
        if entry is None:
            entry = self._entries[job.id] = _Entry(JobState(id=job.id, status=JobStatus.PENDING), digest)
            self._worker.run_exclusive(lambda: self._run(job, entry))
        elif entry.digest not in {None, digest}:
            raise ValueError(f"job {job.id!r} is known with another batch or configuration; choose a new id")
        return entry.state

    def get(self, job_id: str) -> JobState | None:
        entry = self._entries.get(job_id)
        return None if entry is None else entry.state

    async def wait(self, job_id: str, seconds: float) -> JobState | None:
        """Give the state once it is final, at the latest after `seconds`; None for an unknown job."""
        entry = self._entries.get(job_id)
        if entry is None:
            return None
        await asyncio.wait([asyncio.wrap_future(entry.finished)], timeout=seconds)
        return entry.state

    def cancel(self, job_id: str) -> JobState | None:
        """Ask a job to stop before its next micro-batch; one that has ended stays as it is."""
        entry = self._entries.get(job_id)
        if entry is None:
            return None
        entry.stop()
        return entry.state

    def close(self) -> None:
        """Stop all jobs and the worker, and save what no checkpoint holds yet."""
        for entry in self._entries.values():
            entry.stop()
        self._worker.close()
        if self._unsaved:
            self._checkpoints.save(self.loaded, self._learner, self._completed())
            self._unsaved = 0

    async def export(self, name: str) -> ExportedModel:
        """Write the current weights to the output folder, between two jobs."""
        target = self._output_dir.resolve() / name

        def write() -> ExportedModel:
            adapter = export_model(self.loaded, target)
            return ExportedModel(
                path=str(target),
                adapter_path=None if adapter is None else str(adapter),
                policy_version=self._worker.policy_version,
            )

        return await asyncio.wrap_future(self._worker.run_exclusive(write))

    def _run(self, job: TrainingJob, entry: _Entry) -> None:
        """Train on the model thread; every end of it is a state."""
        if not entry.start():
            return

        def report(percent: float) -> None:
            if entry.cancel.is_set():
                raise UpdateCanceled(f"job {job.id} was canceled")
            entry.state = entry.state.model_copy(update={"progress": min(percent, 100.0)})

        try:
            metrics = self._learner.update(job.groups, job.config, report=report)
            done = {"progress": 100.0, "metrics": metrics, "policy_version": self._new_version()}
            self._save(entry.state.model_copy(update={"status": JobStatus.COMPLETED, **done}))
        except UpdateCanceled:
            entry.become(JobStatus.CANCELED)
        except TrainingFailed as error:
            logger.warning("job %s failed: %s", job.id, error)
            entry.become(JobStatus.FAILED, failure=_failure(error))
        except Exception as error:  # the boundary of a job: whatever breaks in it becomes its state
            logger.exception("job %s failed", job.id)
            entry.become(JobStatus.FAILED, failure=_internal(error))
        else:
            entry.become(JobStatus.COMPLETED, **done)

    def _new_version(self) -> str:
        name = self._worker.policy_version.rpartition("@")[0]
        self._worker.engine.policy_version = f"{name}@{self._learner.step}"
        return self._worker.policy_version

    def _save(self, done: JobState) -> None:
        self._unsaved += 1
        if self._unsaved >= self._save_every:
            self._checkpoints.save(self.loaded, self._learner, [*self._completed(), done])
            self._unsaved = 0

    def _completed(self) -> list[JobState]:
        return [entry.state for entry in self._entries.values() if entry.state.status is JobStatus.COMPLETED]


def _failure(error: TrainingFailed) -> JobFailure:
    kind = error.kind if isinstance(error, UpdateRejected) else "internal"
    return JobFailure.model_validate({"type": kind, "message": error.message, "hint": error.hint or ""})


def _internal(error: Exception) -> JobFailure:
    return JobFailure(
        type="internal",
        message=f"{type(error).__name__}: {error}",
        hint="the backend's log has the traceback; out of memory: lower micro_batch_tokens",
    )
