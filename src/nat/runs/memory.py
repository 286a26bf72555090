"""Memory of a long run: what epochs leave behind is freed, and goes back to the system."""

import gc
import sys


def tidy() -> None:
    """Free what only cycles keep alive; with glibc, give free pages back to the system.

    Commands let the collector run seldom, and an epoch leaves a hundred objects in cycles that it would not find. What
    is freed lies between what stays, and glibc returns such pages only when it is asked.
    """
    gc.collect()
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - heavy, and only long runs need it

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)
