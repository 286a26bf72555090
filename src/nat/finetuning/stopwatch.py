"""Where the time of an epoch goes, by stage."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up seconds by name; the clock that is passed in counts them and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.stages: dict[str, float] = {}

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        started = self._clock()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + self._clock() - started

    @property
    def total(self) -> float:
        """Seconds since the watch was made, stages and what lies between them."""
        return self._clock() - self._started
