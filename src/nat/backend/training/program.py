"""Run a program of the user's in place of the optimizer steps, and read what it reports.

A line of its stdout that is a JSON object with one of these keys is a report: `{"progress": 40}` in percent,
`{"step": {"loss": 0.1}}` after an optimizer step, `{"metrics": {…}}` of the whole update. Other lines are left alone;
if it fails, the end of its stderr is shown.

On Linux a supervisor ends all of its processes, elsewhere those of its process group: when it has ended, when the job
is canceled or takes too long, and when this process dies.
"""

import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from nat.errors import UpdateRejected
from nat.files import log_tail
from nat.secrets import excerpt, redact
from nat.supervisor import SUPERVISED

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_END_SECONDS = 20.0
"""Longer than a supervisor takes to end all processes."""
_LONGEST_LINE = 2**16
"""Bytes; a longer line is no report."""
_MOST_BEHIND = 2**22
"""Bytes of output that are read at once; of more, only the last ones."""
_REPORT_CHARS, _MOST_QUOTED = 2000, 100
"""Of a report that is quoted, and how many are."""
_MOST_STEPS, _MOST_METRICS, _NAME_CHARS = 10_000, 100, 200
_NOT_PASSED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that would select our Python environment in the program's."""
_ORPHANS = "nat.backend.vllm.guard"


@dataclass
class Reported:
    """What a program has reported so far."""

    progress: float = 0.0
    steps: list[dict[str, float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    _read: int = 0
    """Bytes of its output."""
    _quoted: int = 0

    def read(self, output: Path, *, ended: bool = False) -> None:
        """Take the reports that the program has written since the last call; the last line may be unfinished."""
        if not output.exists():
            return
        with output.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            self._read = file.seek(max(self._read, end - _MOST_BEHIND))
            while self._read < end and (line := file.readline(_LONGEST_LINE)):
                if len(line) < _LONGEST_LINE and not (ended or line.endswith(b"\n")):
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
            case {"step": dict() as values} if len(self.steps) < _MOST_STEPS:
                self.steps.append(_numbers(values))
            case {"metrics": dict() as values}:
                self.metrics = _numbers(self.metrics | values)
            case {"progress": _} | {"step": _} | {"metrics": _} if self._quoted < _MOST_QUOTED:
                self._quoted += 1
                logger.warning(
                    "The trainer program's report is not understood: %s",
                    excerpt(line.decode(errors="replace"), _REPORT_CHARS),
                )


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
        ending = b"" if process.stdout is None else process.stdout.read()
    _check_end(ending, process.returncode, arguments[0], log)
    reported.read(output, ended=True)
    return reported


@contextmanager
def _running(
    arguments: Sequence[str], variables: Mapping[str, str], output: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run it inside the block; whatever is left of it is ended."""
    linux = sys.platform == "linux"
    by = [*SUPERVISED, os.devnull, str(output)] if linux else [sys.executable, "-P", "-m", _ORPHANS]
    # Of a supervisor, stdout says how the program has ended.
    with log.open("wb") as stderr, nullcontext(subprocess.PIPE) if linux else output.open("wb") as stdout:
        process = subprocess.Popen(
            [*by, *arguments],
            stdin=subprocess.PIPE,
            stdout=stdout,
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
    """Raise UpdateRejected unless the program has ended with exit code 0; `ending` is the supervisor's report."""
    kind, _, number = ending.partition(b" ")
    if kind == b"errno":
        raise _failed(f"cannot be started: {program!r}: {os.strerror(int(number))}", log, "correct `command`")
    if kind == b"exit":
        code = int(number)
    elif sys.platform == "linux":  # the supervisor was killed
        code = code or -signal.SIGKILL
    if code:
        how = f"with exit code {code}" if code > 0 else f"by signal {signal.Signals(-code).name}"
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        remedy = "memory may have run out: see the system's log (dmesg)" if killed else "fix what its log says"
        raise _failed(f"ended {how}", log, f"{remedy}, and resume the run with --resume: the job is done anew")


def _failed(what: str, log: Path, hint: str) -> UpdateRejected:
    message = f"the trainer program {what}; the end of its stderr, {log}:\n{redact(log_tail(log))}"
    return UpdateRejected(message, kind="program_failed", hint=hint)


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    """The finite numbers among the values; names that no file or page could have are left out, too."""
    found = {name: x for name, x in values.items() if len(name) <= _NAME_CHARS and name.isprintable()}
    return dict([(name, x) for name, x in found.items() if isinstance(x, float) and math.isfinite(x)][:_MOST_METRICS])
