"""Where the time of an epoch goes, by stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime


class Stopwatch:
    """Adds up seconds by name; the clock is passed in."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._started = now()
        self.stages: dict[str, float] = {}

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        started = self._now()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + (self._now() - started).total_seconds()

    @property
    def total(self) -> float:
        """Seconds since the watch was made, stages and what lies between them."""
        return (self._now() - self._started).total_seconds()
