"""When checkpoints are written, and beside what.

With `save_every` of 1, the model thread waits until the files are there, and the job is completed then. With `auto`, it
waits for a second. Checkpoints that take longer are written seldom, while requests are answered; the next update waits
for their end.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import perf_counter

from nat.wire.serving import NumberOrAuto
from nat.wire.training import JobState

_SHARE = 0.1
"""Share of the time that checkpoints may take if nobody says how often they are written."""
_SHORT = 1.0
"""Seconds; with `auto`, a checkpoint that takes less is written after every job, before it is completed."""
_BEHIND_SAMPLING = 10
"""Added to the niceness of the thread that writes."""


class Saving:
    """Writes checkpoints on a thread of its own; the owner of the weights calls it, and changes them after `finish`."""

    def __init__(
        self,
        save: Callable[[list[JobState]], object],
        save_every: NumberOrAuto,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`save` writes the current weights as those of the jobs, of which it gets the newest."""
        self._save = save
        self._every = save_every
        self._clock = clock
        self._unsaved: list[JobState] = []
        self._writer = ThreadPoolExecutor(1, "checkpoint", initializer=_lower_priority)
        self._writing: Future[None] | None = None
        self._seconds, self._saved_at = 0.0, clock()

    def completed(self, job: JobState) -> None:
        """Save the weights of this job if that is due."""
        self._unsaved.append(job)
        if self._every != "auto":
            if len(self._unsaved) >= self._every:
                self.save()
        elif self._seconds <= _SHORT:
            if wait([self._begin()], timeout=_SHORT).done:
                self.finish()
        elif self._seconds <= _SHARE * (self._clock() - self._saved_at):
            self._begin()

    def save(self) -> None:
        """Write a checkpoint now."""
        self._begin()
        self.finish()

    def finish(self) -> None:
        """Wait until the checkpoint is written, if one is; what failed is raised here."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Save weights that no checkpoint has."""
        with self._writer:
            self.finish()
            if self._unsaved:
                self.save()

    def _begin(self) -> Future[None]:
        self._writing = self._writer.submit(self._write, self._unsaved.copy())
        return self._writing

    def _write(self, jobs: list[JobState]) -> None:
        began = self._clock()
        self._save(jobs[-1:])
        del self._unsaved[: len(jobs)]
        self._saved_at = self._clock()
        self._seconds = self._saved_at - began


def _lower_priority() -> None:
    """Let sampling go first; Linux counts a priority for each thread, other systems for the process."""
    if sys.platform == "linux":
        os.nice(_BEHIND_SAMPLING)
