"""Processes that keep cores busy, so that a machine under load can be had again.

python -m bench.busy 2 --nice 19 -- python -m bench.sampler --case 135m --engine ours
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LOOP = "import os, sys; os.nice(int(sys.argv[1]))\nwhile True: pass"


@contextmanager
def busy(count: int, *, nice: int = 0) -> Iterator[None]:
    """Compute in `count` other processes of this priority while the block runs."""
    processes = [subprocess.Popen([sys.executable, "-c", _LOOP, str(nice)]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
