"""The batches that a run has sent, in its folder until two checkpoints have the weights that they made.

The backend keeps none: what the checkpoint lacks that a run goes on from is sent again from here.
"""

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from nat.errors import BackendError, findings_of
from nat.files import remove_unfinished, replacing
from nat.wire.json import json_text
from nat.wire.serving import BATCHES
from nat.wire.training import FILE_NAME, SavedJobs, TrainingJob

_NAME = re.compile(rf"(?P<id>{FILE_NAME})\.json")


class SentBatches:
    """A file for each job; ids ascend with the epochs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / BATCHES

    def ids(self) -> list[str]:
        """The jobs that are there, in the order of their epochs."""
        if not self._folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(found["id"] for found in names if found is not None)

    def keep(self, job: TrainingJob, saved: SavedJobs) -> None:
        """Write the batch of a job, which then survives a crash of the machine; those that no restart needs go."""
        remove_unfinished(self._folder)
        for known in self.ids():
            if saved.fallback is not None and known < saved.fallback:
                self.remove(known)
        with replacing(self._folder / f"{job.id}.json") as file:
            file.write(json_text(job, exclude_unset=True).encode())

    def remove(self, job_id: str) -> None:
        """Forget a batch that trained nothing, or is in the weights of two checkpoints."""
        (self._folder / f"{job_id}.json").unlink(missing_ok=True)

    def keep_last(self) -> None:
        """Forget all but the last one: what comes before must not be trained again."""
        for job_id in self.ids()[:-1]:
            self.remove(job_id)

    def newer(self, saved: str | None, completed: list[str]) -> list[str]:
        """Of the completed jobs of a run, those that a checkpoint with the job `saved` lacks.

        Raises:
            BackendError: some of them are not here.

        """
        known = self.ids()
        found = [each for each in known if (saved or "") < each and each.startswith(tuple(completed))]
        lost = len(found) < len(completed) if saved is None else bool(known) and saved < known[0]
        if lost:
            raise BackendError(
                f"the newest undamaged checkpoint in {self._folder.parent} has the weights of "
                f"{saved or 'no update'}, and the batches of the updates after it are gone",
                hint="restore its folder from a copy, or start anew",
            )
        return found

    def read(self, job_id: str, **own: Any) -> TrainingJob:
        """A job as it was sent, with the fields that the adapter adds: the folder may be of others.

        Raises:
            BackendError: its file is damaged.

        """
        path = self._folder / f"{job_id}.json"
        try:
            fields = from_json(path.read_bytes())
            fields.pop("program", None)
            return TrainingJob.model_validate(fields | own)
        except (OSError, ValueError, AttributeError) as error:
            seen = findings_of(error)[0] if isinstance(error, ValidationError) else error
            raise BackendError(
                f"the batch {path} cannot be read: {seen}", hint="restore the file from a copy, or start anew"
            ) from error
