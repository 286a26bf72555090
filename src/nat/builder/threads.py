"""Run blocking user code in threads that keep the caller's context variables."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `fn` in a new thread, with the caller's context variables.

    The event loop's own pool is not used: it has few threads, which host name lookups need too, and they delay the exit
    of the process while a call that missed its deadline still runs.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def call() -> None:
        try:
            future.set_result(context.run(fn, *args, **kwargs))
        except StopIteration as error:  # a future cannot carry it
            future.set_exception(RuntimeError(f"{error!r} left the function"))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            future.set_exception(error)

    Thread(target=call, name=f"nat-{getattr(fn, '__name__', 'function')}", daemon=True).start()
    return await asyncio.wrap_future(future)


async def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a user's function returns, whether it is async or blocks; the latter runs in a thread."""
    if inspect.iscoroutinefunction(fn):
        return await fn(*args, **kwargs)
    result = await run_in_thread(fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result
