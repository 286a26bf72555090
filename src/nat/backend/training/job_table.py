"""The jobs of one backend: the state of each, how to stop it, and how to wait for its end."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from nat.backend.failures import explained
from nat.backend.training.learner import Report
from nat.errors import EngineFailed, TrainingFailed, UpdateCanceled, UpdateRejected
from nat.wire.training import JobFailure, JobState, JobStatus

logger = logging.getLogger(__name__)

KEPT_JOBS = 100
"""Ended jobs that a table keeps."""
Work = Callable[[Report], JobState]
"""Trains and saves; returns the state of the completed job."""


@dataclass
class Job:
    """A job: its current state, and how to stop it and wait for it."""

    state: JobState
    digest: str = ""
    """Digest of the request, where jobs are sent again."""
    ending: Future[JobState] = field(default_factory=Future)
    """Has the final state before anyone else sees it: its callbacks do what must be done by then."""
    finished: Future[None] = field(default_factory=Future)
    _canceled: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, work: Work) -> None:
        """Do the work on the model thread; a failure becomes the job's state."""
        with self._lock:
            if self.state.status is not JobStatus.PENDING:  # it was canceled while it waited
                return
            self._become(JobStatus.RUNNING)
        try:
            done = work(self._report)
        except UpdateCanceled:
            self._become(JobStatus.CANCELED)
        except (TrainingFailed, EngineFailed) as error:
            logger.warning("job %s failed: %s", self.state.id, error)
            kind = error.kind if isinstance(error, UpdateRejected) else "internal"
            found = {"type": kind, "message": error.message, "hint": error.hint or ""}
            self._become(JobStatus.FAILED, failure=JobFailure.model_validate(found))
        except Exception as error:  # the boundary of a job: its failure becomes its state
            logger.exception("job %s failed", self.state.id)
            message, hint = explained(error)
            self._become(JobStatus.FAILED, failure=JobFailure(type="internal", message=message, hint=hint))
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

    def _report(self, percent: float) -> None:
        if self._canceled.is_set():
            raise UpdateCanceled(f"job {self.state.id} was canceled")
        self.state = self.state.model_copy(update={"progress": min(percent, 100.0)})

    def _become(self, status: JobStatus, *, failure: JobFailure | None = None) -> None:
        self._enter(self.state.model_copy(update={"status": status, "failure": failure}))

    def _enter(self, state: JobState) -> None:
        if state.status.final:
            self.ending.set_result(state)
        self.state = state
        if state.status.final:
            self.finished.set_result(None)


class JobTable:
    """The jobs of one backend that have not ended, and the newest that have; safe from any thread."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def add_ended(self, state: JobState, digest: str = "") -> Job:
        """Add a job that ended earlier."""
        job = Job(state, digest)
        job.finished.set_result(None)
        return self._keep(job)

    def add(self, job_id: str, digest: str = "") -> Job:
        """Add a new job, which waits for its turn."""
        job = Job(JobState(id=job_id, status=JobStatus.PENDING), digest)
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
        self._jobs[job.state.id] = job
        ended = [job_id for job_id, known in list(self._jobs.items()) if known.state.status.final]
        for job_id in ended[:-KEPT_JOBS]:
            self._jobs.pop(job_id, None)  # another thread may have removed it
        return job
