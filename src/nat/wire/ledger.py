"""The file in which a backend writes the jobs that it has trained, one line for each."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from nat.wire.training import JobState, WireModel

LEDGER = "jobs.jsonl"
"""In the folder of checkpoints."""
_LONGEST = 2**26
"""Bytes of a line, far more than any job's; a damaged file may be one line of terabytes."""


class TrainedJob(WireModel):
    """One line of the ledger."""

    step: int
    """Optimizer steps up to and including this job."""
    digest: str | None = None
    """Digest of the request; None for a job that comes from a checkpoint of an older release."""
    state: JobState


def trained_jobs(path: Path) -> Iterator[tuple[int, int, TrainedJob]]:
    """Each line with its start and end in bytes, up to one that a crash cut short."""
    place = 0
    with path.open("rb") as file:
        for line in iter(partial(file.readline, _LONGEST), b""):
            try:
                trained = TrainedJob.model_validate_json(line)
            except ValidationError:
                return
            yield place, place + len(line), trained
            place += len(line)
