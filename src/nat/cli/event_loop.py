"""How commands run their coroutines: on uvloop where it is installed, with a patient garbage collector."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_COLLECT_AFTER = (50_000, 20, 50)
"""Thresholds of the three generations; a run keeps many records alive, and Python's own 700 walks them all the time."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`; Ctrl-C cancels the coroutine and then raises KeyboardInterrupt."""
    gc.set_threshold(*_COLLECT_AFTER)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(coroutine)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None, which means asyncio's own loop, where uvloop is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - comes with the `local` extra only
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
