"""What a command does, how far it is and how long it will take: a bar on a terminal, else plain lines.

A pipe gets a line for each step, and further lines while a step lasts, so that nobody sees silence.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nat.finetuning.progress import RunProgress
from nat.runs.plot import duration
from nat.runs.records import Phase
from nat.secrets import redact

SLOW_SECONDS = 2.0
"""What takes less needs no word, where it usually takes less."""
FIRST_SECONDS = 10.0
"""A pipe's second line about a step comes after this time, the next ones after twice the time of the one before."""
QUIET_SECONDS = 30.0
"""The longest time without a line."""
_CHECK_SECONDS = 0.5
_PLACE = re.compile(r"(\d+)/(\d+)")
Clock = Callable[[], float]


@dataclass(frozen=True)
class Step:
    """One step of a command."""

    what: str
    began: float
    total: int | None = None
    """Parts of it; None if it has none, or their number is not known."""
    done: int = 0
    failed: int = 0

    def text(self, now: float) -> str:
        """What it does, how far it is, and how long it takes by the rate so far."""
        failed = f" ({self.failed} failed)" if self.failed else ""
        if not self.total:
            return f"{self.what}{failed}, {now - self.began:.0f} s so far"
        left = (now - self.began) / self.done * (self.total - self.done) if self.done else 0.0
        more = f", about {duration(max(1.0, left))} more" if left > 0 else ""
        return f"{self.what} {self.done}/{self.total}{failed}{more}"


class StepDisplay:
    """Shows one step after the other, as lines or in a bar; any thread may call."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic, bar: Progress | None = None) -> None:
        self._console = console
        self._clock = clock
        self._bar = bar
        self._step: Step | None = None
        self._wait, self._spoke = FIRST_SECONDS, clock()
        self._lock = threading.RLock()

    def begin(self, what: str, total: int | None = None, *, after: float = 0.0) -> None:
        """The next step begins; the one before it is done. A pipe hears of it only if it lasts `after` seconds."""
        with self._lock:
            self._step, self._wait = Step(what, self._clock(), total), after or FIRST_SECONDS
            if self._bar is not None:
                for task in self._bar.task_ids:
                    self._bar.remove_task(task)
                self._bar.add_task(what, total=total)
            elif not after:
                self.line(f"{what} …" if total is None else f"{what} 0/{total} …")

    def expect(self, parts: int) -> None:
        """The step has so many more parts."""
        self._update(lambda step: replace(step, total=(step.total or 0) + parts))

    def advance(self, *, failed: bool = False) -> None:
        """One more part is done."""
        self._update(lambda step: replace(step, done=step.done + 1, failed=step.failed + failed))

    def at(self, place: str) -> None:
        """The step is at a place such as `41/128`; its time counts from the first one. Other words are ignored."""
        if found := _PLACE.fullmatch(place):
            done, total, now = int(found[1]), int(found[2]), self._clock()
            self._update(lambda step: replace(step, done=done, total=total, began=step.began if step.done else now))

    def line(self, text: str) -> None:
        """Print a line of another kind."""
        with self._lock:
            self._spoke = self._clock()
            self._console.print(redact(text), highlight=False, soft_wrap=True, markup=False)

    def check(self) -> None:
        """Print how far the step is, if no line came for long."""
        with self._lock:
            now = self._clock()
            if self._step is not None and now - self._spoke >= self._wait:
                self._wait = min(2 * self._wait, QUIET_SECONDS)
                self.line(self._step.text(now))

    @contextmanager
    def checked(self) -> Iterator[Self]:
        """Check until the block ends, in a thread, so that lines come while the event loop is busy, too."""
        ended = threading.Event()

        def check() -> None:
            while not ended.wait(_CHECK_SECONDS):
                self.check()

        threading.Thread(target=check, name="progress", daemon=True).start()
        try:
            yield self
        finally:
            ended.set()

    def _update(self, change: Callable[[Step], Step]) -> None:
        with self._lock:
            if self._step is None:
                return
            self._step = step = change(self._step)
            if self._bar is not None:
                text = f"{step.what} ({step.failed} failed)" if step.failed else step.what
                self._bar.update(self._bar.task_ids[0], total=step.total, completed=step.done, description=text)


@contextmanager
def shown_steps(console: Console | None = None) -> Iterator[StepDisplay]:
    """The steps of a command until the block ends, by default on stderr: its result is alone on stdout."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            yield StepDisplay(console, bar=bar)
    else:
        with StepDisplay(console).checked() as steps:
            yield steps


class StepProgress(RunProgress):
    """Shows the events of what is no run, such as a probe, as steps; a pipe hears of a repeated one if it lasts."""

    def __init__(self, steps: StepDisplay) -> None:
        self._steps = steps
        self._named = {""}

    def step_started(self, what: str) -> None:
        self._begin(what)

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        self._begin("playing rollouts", total)

    def rollout_done(self, error: str | None) -> None:
        self._steps.advance(failed=error is not None)

    def message(self, text: str) -> None:
        self._steps.line(text)

    def _begin(self, what: str, total: int | None = None) -> None:
        self._steps.begin(what, total, after=SLOW_SECONDS if what in self._named else 0.0)
        self._named.add(what)
