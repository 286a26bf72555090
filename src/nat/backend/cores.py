"""How torch's threads wait for each other, on cores that other programs may use; settled once, before torch is loaded.

Threads wait for each other at the end of every operation. By default a thread waits in a loop for milliseconds. That is
fastest on idle cores. Where other programs compute, such a loop keeps the very thread from running that it waits for.
"""

import logging
import os
import time
from collections.abc import MutableMapping
from pathlib import Path

logger = logging.getLogger(__name__)

_TURNS, _POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
"""Variables of libgomp: turns of the loop before a thread sleeps, and whether it waits in a loop at all."""
_BRIEFLY = "3000"
"""A chat takes a sixth of the time with these beside a load of 5, and 1.5 times as long on idle cores (measured)."""
_BUSY = 0.3
"""Cores that others use, from which on threads wait briefly."""
_SECONDS = 0.3
_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
"""Columns of /proc/stat: idle, and idle while waiting for a disk."""


def share_cores(environment: MutableMapping[str, str], stat: Path = _STAT) -> None:
    """Let threads wait only briefly if other programs use the cores, unless the user has chosen how they wait."""
    if environment.keys() & {_TURNS, _POLICY} or not stat.is_file():
        return
    before = _times(stat)
    time.sleep(_SECONDS)
    passed = [end - start for end, start in zip(_times(stat), before, strict=True)]
    busy = (os.cpu_count() or 1) * (1 - sum(passed[_IDLE]) / max(1, sum(passed)))
    if busy >= _BUSY:
        environment[_TURNS] = _BRIEFLY
        logger.info("other programs use %.1f cores, so threads wait only briefly (%s=%s)", busy, _TURNS, _BRIEFLY)


def _times(stat: Path) -> list[int]:
    return [int(field) for field in stat.read_text().partition("\n")[0].split()[1:9]]
