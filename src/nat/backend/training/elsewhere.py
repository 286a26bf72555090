"""An update by a program of the user's: hand the batch over, run the program, take its weights.

Each attempt has a folder of its own, so one that a killed backend left half-way is begun anew, and what is left of its
program cannot write into the next. After a failure the folder stays until the next job; the logs stay.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nat.backend.algorithms.registry import Resolved
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.learner import Delivered, Report
from nat.backend.training.loss import ByRow
from nat.backend.training.program import run_program
from nat.backend.training.program_batch import write_batch
from nat.backend.training.program_weights import read_output, write_start
from nat.wire.training import TrainerProgram, TrainingJob

PROGRAM_JOBS = "program_jobs"
"""In the output folder."""
_LOG_PERCENT = 99.0
"""Of the progress, before the weights are taken over."""


class ProgramUpdate:
    """One job of a program; call it as the learner does."""

    def __init__(
        self, job: TrainingJob, program: TrainerProgram, resolved: Resolved, loaded: LoadedModel, output_dir: Path
    ) -> None:
        self._job = job
        self._program = program
        self._resolved = resolved
        self._loaded = loaded
        self._folder = output_dir.resolve() / PROGRAM_JOBS

    def __call__(self, rows: Sequence[Row], old: ByRow, reference: ByRow, report: Report) -> Delivered:
        """Run the program on the rows and read its weights.

        Raises:
            UpdateRejected: it failed, or left something else than weights of this model.

        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)  # a program that is about to be ended may still write there
        attempt = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"{self._job.id}-"))
        batch, start, output = (attempt / name for name in ("batch", "start", "output"))
        for folder in (batch, start, output):
            folder.mkdir()
        paths = {"NAT_BATCH": str(batch), "NAT_OUTPUT": str(output)} | write_start(self._loaded, start)
        about = {"job": self._job.id, **{name.removeprefix("NAT_").lower(): path for name, path in paths.items()}}
        write_batch(batch, self._job.groups, rows, old=old, reference=reference, resolved=self._resolved, about=about)
        reported = run_program(
            self._program.arguments,
            paths | {"NAT_JOB": self._job.id},
            log=self._folder / f"{self._job.id}.log",
            seconds=self._program.timeout,
            report=lambda percent: report(min(percent, _LOG_PERCENT)),
        )
        weights = read_output(self._loaded, start, output)
        shutil.rmtree(attempt, ignore_errors=True)
        return Delivered(weights, reported.steps, {f"program/{name}": x for name, x in reported.metrics.items()})
