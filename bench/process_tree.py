"""CPU time and memory of a process and all processes that it started, read from /proc."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_SECONDS_BETWEEN_LOOKS = 0.1


@dataclass
class Usage:
    """What a process tree used while a block ran; complete when the block has ended."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0

    @property
    def cores(self) -> float:
        """Cores that were busy on average."""
        return self.cpu_seconds / self.seconds


@contextmanager
def measured(pid: int) -> Iterator[Usage]:
    """Measure the processes of a tree while the block runs; their memory is looked at ten times a second."""
    usage, ended, pids = Usage(), threading.Event(), list(_tree(pid))

    def look() -> None:
        while not ended.wait(_SECONDS_BETWEEN_LOOKS):
            usage.peak_mb = max(usage.peak_mb, _resident_mb(pids))

    watch = threading.Thread(target=look)
    usage.peak_mb = _resident_mb(pids)
    watch.start()
    before, began = cpu_seconds(pid), time.perf_counter()
    try:
        yield usage
    finally:
        usage.seconds = time.perf_counter() - began
        usage.cpu_seconds = cpu_seconds(pid) - before
        ended.set()
        watch.join()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its children."""
    return sum(_cpu_seconds(each) for each in _tree(pid))


def _resident_mb(pids: Sequence[int]) -> float:
    """Resident memory of processes; files and shared memory count once, as those of the process that maps most."""
    own, shared = 0.0, [0.0]
    for pid in pids:
        fields = _status(pid)
        own += fields.get("RssAnon", 0.0)
        shared.append(fields.get("RssFile", 0.0) + fields.get("RssShmem", 0.0))
    return own + max(shared)


def _tree(pid: int) -> Iterator[int]:
    left = [pid]
    while left:
        yield (one := left.pop())
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                left += map(int, thread.read_text().split())


def _cpu_seconds(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0  # it has ended


def _status(pid: int) -> dict[str, float]:
    """Sizes in MB by name."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        sizes = (line.split() for line in lines if line.endswith(" kB"))
        return {name.rstrip(":"): int(size) / 1024 for name, size, _ in sizes}
    return {}
