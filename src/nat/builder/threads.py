"""Run blocking user code beside the event loop."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `fn` in a thread of its own, with the caller's context variables.

    Not the loop's own pool: that has as many threads as the machine has cores and is needed to look up host
    names, and its threads hold up the exit of the process while a call that has lost its deadline is stuck.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(set_outcome: Callable[[Any], None], outcome: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if future.done() else set_outcome(outcome))

    def call() -> None:
        try:
            result = context.run(fn, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the caller waits
            failure = RuntimeError(f"{error!r} left the function") if isinstance(error, StopIteration) else error
            deliver(future.set_exception, failure)
        else:
            deliver(future.set_result, result)

    threading.Thread(target=call, name=f"nat-{getattr(fn, '__name__', 'function')}", daemon=True).start()
    return await future
