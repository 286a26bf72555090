"""`jobs.jsonl` has one line for each trained job, so that no job is trained twice.

The line of a job is on disk before the checkpoint with its weights. Resuming from a checkpoint removes the lines of
later steps, because its weights do not include those jobs. Only the offset of each line is in memory.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from nat.wire.ledger import TrainedJob, trained_jobs
from nat.wire.training import JobState


class JobLedger:
    """The trained jobs of one set of weights."""

    def __init__(self, path: Path, *, step: int = 0, jobs: Iterable[JobState] = ()) -> None:
        """Resume from a checkpoint of this step that contains these jobs."""
        self.removed: list[str] = []
        """Jobs that were trained after this step, and are not in the weights."""
        self._path = path
        self._places: dict[str, int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._size = 0
        for place, end, trained in list(trained_jobs(path)):
            if self.removed or trained.step > step:
                self.removed.append(trained.state.id)
                continue
            self._places[trained.state.id] = place
            self._size = end
        os.truncate(path, self._size)
        for state in jobs:
            if state.id not in self._places:
                self.add(TrainedJob(step=step, state=state))

    def add(self, trained: TrainedJob) -> None:
        """Append a job and flush it to disk."""
        line = trained.model_dump_json().encode() + b"\n"
        with self._path.open("r+b") as file:
            file.seek(self._size)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._places[trained.state.id] = self._size
        self._size += len(line)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._places

    def find(self, job_id: str) -> TrainedJob | None:
        """Read a job's line."""
        place = self._places.get(job_id)
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            return TrainedJob.model_validate_json(file.readline())
