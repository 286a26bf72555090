"""`jobs.jsonl` has one line for each trained job, so that no job is trained twice.

The line of a job is on disk before the checkpoint with its weights. Resuming from a checkpoint removes the lines of
later steps, because its weights do not include those jobs. Only the offset of each line is in memory.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from nat.wire.training import JobState, WireModel

LEDGER = "jobs.jsonl"


class TrainedJob(WireModel):
    """One line of the ledger."""

    step: int
    """Optimizer steps up to and including this job."""
    digest: str | None = None
    """Digest of the request; None for a job that comes from a checkpoint of an older release."""
    state: JobState


class JobLedger:
    """The trained jobs of one set of weights."""

    def __init__(self, path: Path, *, step: int = 0, jobs: Iterable[JobState] = ()) -> None:
        """Resume from a checkpoint of this step that contains these jobs."""
        self._path = path
        self._places: dict[str, int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._size = 0
        for place, end, trained in list(self._lines()):
            if trained.step > step:
                break
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

    def find(self, job_id: str) -> TrainedJob | None:
        """Read a job's line."""
        place = self._places.get(job_id)
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            return TrainedJob.model_validate_json(file.readline())

    def _lines(self) -> Iterator[tuple[int, int, TrainedJob]]:
        """Each line with its start and end, up to a line that a crash cut short."""
        place = 0
        with self._path.open("rb") as file:
            for line in file:
                try:
                    trained = TrainedJob.model_validate_json(line)
                except ValidationError:
                    return
                yield place, place + len(line), trained
                place += len(line)
