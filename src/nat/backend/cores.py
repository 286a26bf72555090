"""How many threads compute, and how they wait for each other, on cores that other programs may use.

Threads wait for each other at the end of every operation, so one that another program keeps from running holds up all:
a single busy program makes two threads on two cores several times as slow as one. So the number of threads follows
what the others leave, measured while the backend runs.

By default a thread waits in a loop for milliseconds. That is fastest on idle cores. Where other programs compute, such
a loop keeps the very thread from running that it waits for. That is settled once, before torch is loaded.
"""

import logging
import os
import time
from collections.abc import Callable, MutableMapping, Sequence
from math import floor
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

_TURNS, _POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
"""Variables of libgomp: turns of the loop before a thread sleeps, and whether it waits in a loop at all."""
_BRIEFLY = "3000"
_BUSY = 0.3
"""Cores that others use, from which on threads wait briefly, and one of them has no core."""
_WAITING = 0.5
"""Cores of its own below which a process that leaves a core idle is waiting: the agent computes meanwhile."""
_SECONDS = 0.3
_INTERVAL = 1.0
_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
"""Columns of /proc/stat: idle, and idle while waiting for a disk."""


def busy_cores(*, stat: Path = _STAT, seconds: float = _SECONDS) -> float:
    """Cores in use while this process sleeps; 0 where the system does not tell."""
    if not stat.is_file():
        return 0.0
    before = _times(stat)
    time.sleep(seconds)
    return _busy(before, _times(stat))


def share_cores(environment: MutableMapping[str, str], *, busy: Callable[[], float] = busy_cores) -> None:
    """Let threads wait only briefly if other programs use the cores, unless the user has chosen how they wait."""
    if not environment.keys() & {_TURNS, _POLICY} and (others := busy()) >= _BUSY:
        environment[_TURNS] = _BRIEFLY
        logger.info(
            "other programs use %.1f cores, so torch's threads wait for each other only briefly (%s=%s)",
            others,
            _TURNS,
            _BRIEFLY,
        )


class FreeCores:
    """The threads that find a free core, at most `most`; to be asked often, it measures once a second."""

    def __init__(
        self,
        most: int,
        *,
        fixed: bool = False,
        stat: Path = _STAT,
        clock: Callable[[], float] = time.monotonic,
        own_time: Callable[[], float] = time.process_time,
    ) -> None:
        """With `fixed`, always `most`."""
        self._most, self._stat, self._clock, self._own_time = most, stat, clock, own_time
        self._found = most
        self._last = self._seen() if most > 1 and not fixed and stat.is_file() else None

    def threads(self) -> int:
        """As many threads as the last second had cores that were idle or this process's own; at least 1.

        A second in which this process waited for requests changes nothing: others computed in turn with it.
        """
        if self._last is None or self._clock() - self._last.at < _INTERVAL:
            return self._found
        before, self._last = self._last, self._seen()
        own = (self._last.own - before.own) / (self._last.at - before.at)
        busy = _busy(before.times, self._last.times)
        if own < _WAITING < _cores() - busy:
            return self._found
        free = _cores() - max(0.0, busy - own)
        found = max(1, min(self._most, floor(free + _BUSY)))
        if found != self._found:
            logger.info("threads that compute: %d, since %.1f of %d cores are free or our own", found, free, _cores())
        self._found = found
        return found

    def _seen(self) -> "_Seen":
        return _Seen(self._clock(), self._own_time(), _times(self._stat))


class _Seen(NamedTuple):
    at: float
    own: float
    """Seconds of all cores that this process has computed."""
    times: Sequence[int]


def _cores() -> int:
    return os.cpu_count() or 1


def _busy(before: Sequence[int], now: Sequence[int]) -> float:
    """Cores in use between two readings."""
    passed = [end - start for end, start in zip(now, before, strict=True)]
    return _cores() * (1 - sum(passed[_IDLE]) / max(1, sum(passed)))


def _times(stat: Path) -> list[int]:
    """Time of all cores since the start of the system, by kind."""
    first = stat.read_text().partition("\n")[0]
    return [int(field) for field in first.split()[1:9]]
