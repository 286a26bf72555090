"""An update by a program of the user's: hand the batch over, run the program, take its weights.

Each attempt has a folder of its own, so one that a killed backend left half-way is begun anew, and what is left of its
program cannot write into the next. After a failure the folder stays until the next job; the logs stay.

A line of its stdout that is a JSON object with one of these keys is a report: `{"progress": 40}` in percent,
`{"step": {"loss": 0.1}}` after an optimizer step, `{"metrics": {…}}` of the whole update. Other lines are left alone;
if it fails, the end of its stderr is shown.

A supervisor ends its process group when it has ended, when the job is canceled or takes too long, and when this process
dies.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nat.backend.algorithms.registry import Resolved
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.learner import Delivered, Report
from nat.backend.training.loss import ByRow
from nat.backend.training.program_batch import write_batch
from nat.backend.training.program_weights import read_output, write_start
from nat.errors import UpdateRejected
from nat.files import log_tail
from nat.secrets import redact
from nat.supervisor import SUPERVISED
from nat.wire.training import TrainerProgram, TrainingJob

PROGRAM_JOBS = "program_jobs"
"""In the output folder."""
_LOG_PERCENT = 99.0
"""Of the progress, before the weights are taken over."""
_POLL_SECONDS = 0.1
_END_SECONDS = 20.0
"""Longer than a supervisor takes to end all processes."""
_NOT_PASSED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that would select our Python environment in the program's."""


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
        """Run the program on the rows and read its weights."""
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


@dataclass
class Reported:
    """What a program has reported so far."""

    progress: float = 0.0
    steps: list[dict[str, float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    _read: int = 0
    """Bytes of its output."""

    def read(self, output: Path, *, ended: bool = False) -> None:
        """Take the reports that the program has written since the last call; the last line may be unfinished."""
        if not output.exists():
            return
        with output.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not (ended or line.endswith(b"\n")):
                    return
                self._read += len(line)
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            found = json.loads(line, parse_int=float)  # an int may be too large for a float
        except (ValueError, RecursionError):
            return
        match found:
            case {"progress": float() as percent} if math.isfinite(percent):
                self.progress = min(max(0.0, percent), 100.0)
            case {"step": dict() as values}:
                self.steps.append(_numbers(values))
            case {"metrics": dict() as values}:
                self.metrics |= _numbers(values)


def run_program(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    log: Path,
    seconds: float,
    report: Callable[[float], None],
) -> Reported:
    """Run a program to its end; an exception of `report`, which gets the progress in percent, ends it.

    Raises:
        UpdateRejected: it cannot be started, failed, or took too long; with the end of its log.

    """
    output = log.with_name(f"{log.name}.out")
    output.unlink(missing_ok=True)  # of an attempt before
    reported, deadline = Reported(), time.monotonic() + seconds
    with _running(arguments, variables, output, log) as process:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise _failed(f"did not end within {seconds:g} s", log, "raise `timeout` of the trainer adapter")
            reported.read(output)
            report(reported.progress)
            time.sleep(_POLL_SECONDS)
        assert process.stdout is not None, "a pipe"
        ending = process.stdout.read()
    _check_end(ending, process.returncode, arguments[0], log)
    reported.read(output, ended=True)
    return reported


@contextmanager
def _running(
    arguments: Sequence[str], variables: Mapping[str, str], output: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*SUPERVISED, os.devnull, str(output), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={name: value for name, value in os.environ.items() if name not in _NOT_PASSED} | dict(variables),
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            assert process.stdin is not None, "a pipe"
            process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _check_end(ending: bytes, code: int, program: str, log: Path) -> None:
    kind, _, number = ending.partition(b" ")
    if kind == b"errno":
        raise _failed(f"cannot be started: {program!r}: {os.strerror(int(number))}", log, "correct `command`")
    code = int(number) if kind == b"exit" else code or -signal.SIGKILL  # the supervisor was killed
    if code:
        how = f"with exit code {code}" if code > 0 else f"by signal {signal.Signals(-code).name}"
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        remedy = "memory may have run out: see the system's log (dmesg)" if killed else "fix what its log says"
        raise _failed(f"ended {how}", log, f"{remedy}, and resume the run with --resume: the job is done anew")


def _failed(what: str, log: Path, hint: str) -> UpdateRejected:
    message = f"the trainer program {what}; the end of its stderr, {log}:\n{redact(log_tail(log))}"
    return UpdateRejected(message, kind="program_failed", hint=hint)


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {name: x for name, x in values.items() if isinstance(x, float) and math.isfinite(x)}
