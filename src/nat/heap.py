"""The memory that the C library keeps after it was freed."""

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's `mallopt`."""
_LARGEST = 2**30
_LARGEST_ONCE = 2**25
"""The same for releases of glibc before 2.35."""


def return_free_pages() -> None:
    """Return the pages of freed memory to the system, with glibc on Linux; elsewhere nothing happens.

    Without it, glibc returns only what lies at the end of its heap.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def keep_free_pages() -> None:
    """Keep the pages of freed memory for what is allocated next, with glibc; call it before threads begin.

    As it is, each large block gets pages of its own, which the system has to clear, and returns them.
    """
    set_to = _of_glibc("mallopt")
    if set_to is not None:
        set_to(_ARENA_MAX, 1)
        set_to(_TRIM_THRESHOLD, 2**31 - 1)
        if not set_to(_MMAP_THRESHOLD, _LARGEST):
            set_to(_MMAP_THRESHOLD, _LARGEST_ONCE)


def _of_glibc(name: str) -> Any:
    """A function that other C libraries lack; None there."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
