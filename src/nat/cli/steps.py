"""What a command does, how far it is and how long it will take: a bar on a terminal, else plain lines.

A pipe gets a line for each step, and further lines while a step lasts, so that nobody sees silence.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

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


class StepDisplay:
    """Shows one step after the other, as lines or in a bar; any thread may call."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic, bar: Progress | None = None) -> None:
        self._console = console
        self._clock = clock
        self._bar = bar
        self._task: TaskID | None = None
        self._what, self._total, self._done, self._failed = "", 0, 0, 0
        self._began = self._spoke = clock()
        self._wait = FIRST_SECONDS
        self._lock = threading.RLock()

    def begin(self, what: str, total: int | None = None, *, after: float = 0.0) -> None:
        """The next step begins; the one before it is done. A pipe hears of it only if it lasts `after` seconds."""
        with self._lock:
            self._what, self._total, self._done, self._failed = what, total or 0, 0, 0
            self._began, self._wait = self._clock(), after or FIRST_SECONDS
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(what, total=total)
            elif not after:
                self.line(f"{what} …" if total is None else f"{what} 0/{total} …")

    def expect(self, parts: int) -> None:
        """The step has so many more parts."""
        with self._lock:
            self._total += parts
            self._draw()

    def advance(self, *, failed: bool = False) -> None:
        """One more part is done."""
        with self._lock:
            self._done += 1
            self._failed += failed
            self._draw()

    def at(self, place: str) -> None:
        """The step is at a place such as `41/128`; its time counts from the first one. Other words are ignored."""
        if found := _PLACE.fullmatch(place):
            with self._lock:
                self._began = self._began if self._done else self._clock()
                self._done, self._total = int(found[1]), int(found[2])
                self._draw()

    def line(self, text: str) -> None:
        """Print a line of another kind."""
        with self._lock:
            self._spoke = self._clock()
            self._console.print(redact(text), highlight=False, soft_wrap=True, markup=False)

    def check(self) -> None:
        """Print how far the step is, if no line came for long."""
        with self._lock:
            if self._what and self._clock() - self._spoke >= self._wait:
                self._wait = min(2 * self._wait, QUIET_SECONDS)
                self.line(self._so_far())

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

    @property
    def _named(self) -> str:
        return f"{self._what} ({self._failed} failed)" if self._failed else self._what

    def _so_far(self) -> str:
        """What the step does, how far it is, and how long it takes by the rate so far."""
        spent = self._clock() - self._began
        if not self._total:
            return f"{self._named}, {spent:.0f} s so far"
        left = spent / self._done * (self._total - self._done) if self._done else 0.0
        failed = f" ({self._failed} failed)" if self._failed else ""
        more = f", about {duration(max(1.0, left))} more" if left > 0 else ""
        return f"{self._what} {self._done}/{self._total}{failed}{more}"

    def _draw(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=self._total or None, completed=self._done, description=self._named)


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
    """Shows the events of what is no run, such as a probe, as steps."""

    def __init__(self, steps: StepDisplay) -> None:
        self._steps = steps

    def step_started(self, what: str) -> None:
        self._steps.begin(what)

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        self._steps.begin("playing rollouts", total)

    def rollout_done(self, error: str | None) -> None:
        self._steps.advance(failed=error is not None)

    def message(self, text: str) -> None:
        self._steps.line(text)
