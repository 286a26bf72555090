"""The batches of accepted jobs, on disk until two checkpoints have the weights that they made: one may be damaged.

A job's file is there before the job is acknowledged. So a backend that was killed trains it when it starts again, in
the order in which jobs were accepted. A job that failed or was canceled has no file.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from nat.files import remove_unfinished, replacing
from nat.http.asgi import MAX_BODY_BYTES
from nat.wire.training import FILE_NAME, TrainingJob

ACCEPTED = "accepted_jobs"
_SUFFIX = ".json"
_MOST_BYTES = 2 * MAX_BODY_BYTES
"""Of a file, which writes some defaults out."""
_NAME = re.compile(rf"(?P<number>[0-9]{{8,15}})-(?P<id>{FILE_NAME}){re.escape(_SUFFIX)}")


class AcceptedJobs:
    """One file for each job, as it was sent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if folder.is_dir():
            remove_unfinished(folder)
        found = sorted(
            (path.name, named) for path in folder.glob(f"*{_SUFFIX}") if (named := _NAME.fullmatch(path.name))
        )
        self._paths = {named["id"]: folder / name for name, named in found}
        self._count = int(found[-1][1]["number"]) if found else 0

    def __iter__(self) -> Iterator[str]:
        """The ids of the jobs, in the order in which they were accepted."""
        return iter(list(self._paths))

    def add(self, job: TrainingJob) -> None:
        """Write a job; when this returns, it survives a crash of the machine."""
        self._count += 1
        path = self._folder / f"{self._count:08d}-{job.id}{_SUFFIX}"
        with replacing(path) as file:
            for part in _parts(job):
                file.write(part)
        self._paths[job.id] = path

    def read(self, job_id: str) -> TrainingJob | None:
        """The job; None if its file is damaged, so that its client must send it again."""
        path = self._paths[job_id]
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
                return None  # a folder of others may have anything here
            job = TrainingJob.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None
        return job if job.id == job_id else None

    def remove(self, job_id: str) -> None:
        """Forget a job, if it is there."""
        if (path := self._paths.pop(job_id, None)) is not None:
            path.unlink(missing_ok=True)


def digest_of(job: TrainingJob) -> str:
    """SHA-256 of a job's id, settings and batch."""
    digest = sha256()
    for part in _parts(job):
        digest.update(part)
    return digest.hexdigest()


def _parts(job: TrainingJob) -> Iterator[bytes]:
    """A job as JSON, rollout by rollout, so that other threads may run in between.

    Settings that are not set are left out: a default that is written out would replace that of the algorithm.
    """
    yield job.model_dump_json(exclude={"groups"}, exclude_unset=True).encode()[:-1] + b',"groups":['
    for number, group in enumerate(job.groups):
        yield b"," * (number > 0) + group.model_dump_json(exclude={"rollouts"}).encode()[:-1] + b',"rollouts":['
        for place, rollout in enumerate(group.rollouts):
            yield b"," * (place > 0) + rollout.model_dump_json().encode()
        yield b"]}"
    yield b"]}"
