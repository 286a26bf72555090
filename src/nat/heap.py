"""The memory that the C library keeps after it was freed."""

import sys


def return_free_pages() -> None:
    """Return the pages of freed memory to the system, with glibc on Linux; elsewhere nothing happens.

    Without it, glibc returns only what lies at the end of its heap.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - slow to import, and only long runs and the backend need it

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries lack it
        if trim is not None:
            trim(0)
