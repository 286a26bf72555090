"""Folders that a backend lends to vLLM: this user's alone, and removed even after a kill."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_LOCK = ".lock"
_WEIGHTS, _SOCKET = "nat-weights-", "nat-vllm-"
_SHORT_BYTES = 70
"""A path of a Unix socket has at most 103 bytes, on Linux 107; this leaves room for the names below."""


@contextmanager
def weights_folder(place: Path) -> Iterator[Path]:
    """Lend a new folder in `place` through which weights pass from the learner to vLLM."""
    with _locked_folder(_WEIGHTS, place) as folder:
        yield folder


@contextmanager
def private_folder(place: Path | None = None) -> Iterator[Path]:
    """Lend a new folder for the socket; in `place`, or the folder for temporary files, if its path is short enough."""
    place = place or Path(tempfile.gettempdir())
    short = len(os.fsencode(place)) <= _SHORT_BYTES
    with _locked_folder(_SOCKET, place if short else Path("/tmp")) as folder:
        yield folder


def folder_with_room(size: int, fallback: Path, shared_memory: Path = Path("/dev/shm")) -> Path:
    """Give the shared memory if twice `size` bytes are free there, else `fallback`."""
    if shared_memory.is_dir() and shutil.disk_usage(shared_memory).free >= 2 * size:
        return shared_memory
    return fallback


@contextmanager
def _locked_folder(prefix: str, place: Path) -> Iterator[Path]:
    """Lend a new folder, locked by this process; those of processes that were killed are removed."""
    _remove_abandoned(prefix, place)
    with ExitStack() as stack:
        while True:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=place)))
            with suppress(FileNotFoundError):
                lock = stack.enter_context((folder / _LOCK).open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                if folder.exists():  # nobody has taken it for abandoned before it was locked
                    break
        yield folder


def _remove_abandoned(prefix: str, place: Path) -> None:
    """Remove folders whose lock nobody holds; in shared memory they take memory until then."""
    for lock_path in place.glob(f"{prefix}*/{_LOCK}"):
        with suppress(OSError), lock_path.open() as lock:  # another user's stays
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_path.parent)
