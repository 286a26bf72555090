"""`nat` and its backend, which are killed together at a point that the environment names."""

import inspect
import os
import signal
import sys
import threading
import time
from functools import partial, wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from fakes.finetuning_project import blank_plot
from killed.agents import register

AT = "KILLED_AT"
"""Variable with the name of a point, or with seconds after the start of `nat`."""
PROGRAM = "import nat.cli.main; from killed.processes import {0}; {0}()"
"""Imports what the tests fork."""
HARNESS, BACKEND = "harness", "backend"
_JOURNAL, _CHECKPOINTS = "nat.runs.journal:Journal", "nat.backend.training.checkpoints:Checkpoints"


_RECORD = f"{_JOURNAL}.record"


class Point(NamedTuple):
    """Before or after a call of a method, counted from 1."""

    process: str
    method: str
    when: str
    count: int
    holds_checkpoint: bool = False
    """The backend never writes the second checkpoint."""
    awaits_checkpoint: bool = False
    """Both wait until the second checkpoint is there."""
    kind: str = ""
    """The class of the call's argument, if others do not count."""


POINTS = {
    "a rollout is kept": Point(HARNESS, f"{_JOURNAL}.keep", "after", 11),
    "the batch is not kept": Point(HARNESS, f"{_JOURNAL}.keep_batch", "before", 2),
    "the batch is kept, not sent": Point(HARNESS, f"{_JOURNAL}.keep_batch", "after", 2),
    "the batch is sent": Point(HARNESS, "nat.plugins.local.client:BackendClient.submit", "after", 2),
    "in the update": Point(BACKEND, "nat.backend.training.optimizer:MasterAdamW.step", "after", 2),
    "after the update, before the checkpoint": Point(BACKEND, f"{_CHECKPOINTS}.save", "before", 2),
    "the journal has the job, no checkpoint": Point(HARNESS, _RECORD, "after", 4, True, kind="JobRecord"),
    "the journal has the epoch, no checkpoint": Point(HARNESS, _RECORD, "after", 2, True, kind="EpochRecord"),
    "the checkpoint has the job, not the journal": Point(HARNESS, _RECORD, "before", 4, False, True, "JobRecord"),
    "the journal has the epoch and a checkpoint": Point(HARNESS, _RECORD, "after", 2, False, True, "EpochRecord"),
}


def harness() -> None:
    """`nat`, whose backend is the one below."""
    from nat.cli.commands import finetune
    from nat.cli.main import run_cli
    from nat.plugins.local import llm

    command = (sys.executable, "-c", PROGRAM.format("backend"))
    llm.running_backend = partial(llm.running_backend, command=command)
    run = finetune.run_finetuning

    async def run_finetuning(*given: Any, **more: Any) -> Any:
        return await run(*given, **more, plotter=blank_plot)

    finetune.run_finetuning = run_finetuning
    register()
    _watch(HARNESS)
    run_cli()


def backend() -> None:
    """`python -m nat.backend`."""
    from nat.backend.__main__ import main

    _watch(BACKEND)
    sys.exit(main())


def _watch(process: str) -> None:
    """Have this process die at the point, if that is one of its own."""
    Path(f"{process}.pid").write_text(str(os.getpid()))
    at = os.environ.get(AT, "")
    if process == HARNESS:
        Path(f"{BACKEND}.pid").unlink(missing_ok=True)
        if at and at not in POINTS:
            timer = threading.Timer(float(at), _kill_both)
            timer.daemon = True
            timer.start()
    if (point := POINTS.get(at)) is None:
        return
    if process == BACKEND and point.holds_checkpoint:
        _wrap(f"{_CHECKPOINTS}.save", "before", 2, lambda: time.sleep(600))
    if process == point.process:
        _wrap(point.method, point.when, point.count, partial(_die, point), point.kind)


def _wrap(method: str, when: str, count: int, act: Any, kind: str = "") -> None:
    place, _, name = method.rpartition(".")
    owner = resolve_name(place)
    function, calls = getattr(owner, name), iter(range(1, 1000))

    @wraps(function)
    def called(*values: Any, **more: Any) -> Any:
        due = (not kind or type(values[-1]).__name__ == kind) and next(calls) == count
        if due and when == "before":
            act()
        result = function(*values, **more)
        if due and when == "after":
            act()
        return result

    @wraps(function)
    async def awaited(*values: Any, **more: Any) -> Any:
        result = await function(*values, **more)
        if next(calls) == count:
            act()
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(function) else called)


def _die(point: Point) -> None:
    while point.awaits_checkpoint and len(list(Path("runs").glob("2*/checkpoints/step_*"))) < 2:
        time.sleep(0.01)
    _kill_both()


def _kill_both() -> None:
    pids = [int(path.read_text()) for path in (Path(f"{each}.pid") for each in (BACKEND, HARNESS)) if path.exists()]
    for pid in sorted(pids, key=os.getpid().__eq__):  # itself last
        os.kill(pid, signal.SIGKILL)
