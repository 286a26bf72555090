"""How commands run their coroutines: on uvloop where it is installed, with a patient garbage collector."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nat.cli.ending import Ending, Interrupted, ended_by_signals
from nat.errors import WorkflowError

T = TypeVar("T")

_COLLECT_AFTER = (50_000, 20, 50)
"""Thresholds of the three generations; a run keeps many records alive, and Python's own 700 walks them all the time."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, but what user code raises in a task of its own ends that task and not the loop.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or SIGHUP has cancelled the coroutine, which has cleaned up.
        WorkflowError: the coroutine was ended by `sys.exit`, or by a cancellation that nobody asked for.

    """
    gc.set_threshold(*_COLLECT_AFTER)
    with ended_by_signals() as ending, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        task = loop.create_task(coroutine)
        ending.on_first(lambda reason: _cancel_soon(loop, task, ending, reason))
        try:
            return _result(loop, task)
        except asyncio.CancelledError:
            if ending.number is None:
                raise WorkflowError(
                    "code of the configuration's components cancelled the command",
                    hint="look for a CancelledError that is raised, or passed on, where nothing was cancelled",
                ) from None
            raise Interrupted(ending.number) from None
        except SystemExit as error:
            raise WorkflowError(
                f"code of the configuration's components called sys.exit({error.code!r})",
                hint="raise an exception that says what is wrong; nothing but the command itself ends the process",
            ) from error


def _cancel_soon(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T], ending: Ending, reason: str) -> None:
    def cancel() -> None:
        ending.noticed()
        task.cancel(reason)

    loop.call_soon_threadsafe(cancel)


def _result(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """The loop passes SystemExit and KeyboardInterrupt of any task on to here; the others can go on all the same."""
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt):
            if task.done():
                raise


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None, which means asyncio's own loop, where uvloop is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - comes with the `local` extra only
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
