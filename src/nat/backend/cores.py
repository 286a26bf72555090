"""How torch's threads wait for each other, on cores that other programs may use; to be settled before torch is loaded.

By default a thread waits in a loop for milliseconds. That is fastest on idle cores. Where other programs compute, such
a loop keeps the very thread from running that it waits for, and a step takes ten times as long.
"""

import logging
import os
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path

logger = logging.getLogger(__name__)

_TURNS, _POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
"""Variables of libgomp: turns of the loop before a thread sleeps, and whether it waits in a loop at all."""
_BRIEFLY = "3000"
_BUSY = 0.3
"""Cores that others use, from which on threads wait briefly."""
_SECONDS = 0.3
_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
"""Columns of /proc/stat: idle, and idle while waiting for a disk."""


def busy_cores(*, stat: Path = _STAT, seconds: float = _SECONDS) -> float:
    """Cores in use while this process sleeps; 0 where the system does not tell."""
    if not stat.is_file():
        return 0.0
    before = _times(stat)
    time.sleep(seconds)
    passed = [now - then for now, then in zip(_times(stat), before, strict=True)]
    return (os.cpu_count() or 1) * (1 - sum(passed[_IDLE]) / max(1, sum(passed)))


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


def _times(stat: Path) -> list[int]:
    """Time of all cores since the start of the system, by kind."""
    first = stat.read_text().partition("\n")[0]
    return [int(field) for field in first.split()[1:9]]
