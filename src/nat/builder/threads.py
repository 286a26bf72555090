"""Run blocking user code in threads that keep the caller's context variables."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `fn` in a new thread, with the caller's context variables.

    The event loop's own pool is not used: it has few threads, which host name lookups need too, and they delay the exit
    of the process while a call that missed its deadline still runs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(set_outcome: Callable[[Any], None], outcome: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
            loop.call_soon_threadsafe(lambda: None if future.done() else set_outcome(outcome))

    def call() -> None:
        try:
            result = context.run(fn, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            failure = RuntimeError(f"{error!r} left the function") if isinstance(error, StopIteration) else error
            deliver(future.set_exception, failure)
        else:
            deliver(future.set_result, result)

    threading.Thread(target=call, name=f"nat-{getattr(fn, '__name__', 'function')}", daemon=True).start()
    return await future


class ContextThreadPool(ThreadPoolExecutor):
    """Each call gets a copy of the context that it was submitted in."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The pool's `submit`."""
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))
