"""Folders through which weights pass from the learner to vLLM: in shared memory, and removed even after a kill."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "nat-weights-"
_LOCK = ".lock"


@contextmanager
def weights_folder(place: Path) -> Iterator[Path]:
    """Lend a new folder in `place`, locked by this process; those of processes that were killed are removed."""
    _remove_abandoned(place)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place) as name, (Path(name) / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def folder_with_room(size: int, fallback: Path, shared_memory: Path = Path("/dev/shm")) -> Path:  # noqa: S108
    """Give the shared memory if twice `size` bytes are free there, else `fallback`."""
    if shared_memory.is_dir() and shutil.disk_usage(shared_memory).free >= 2 * size:
        return shared_memory
    return fallback


def _remove_abandoned(place: Path) -> None:
    """Remove folders whose lock nobody holds; in shared memory they take memory until then."""
    for lock_path in place.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock_path.open() as lock:  # another user's stays
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_path.parent)
