"""Prepare prompts in threads, few at a time, while the event loop answers others.

A thread waits for the sandbox, which bounds what templates and tokenizers take. Threads are kept: starting one blocks
the event loop, which took a third of a short call. They are daemons, so none keeps a server from ending.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from nat.http.asgi import Receive, cancel_on_disconnect

A = TypeVar("A")

AT_ONCE = 4
"""Prompts in preparation; also the children of a sandbox."""
_Job = Callable[[], None]


class PromptThreads:
    """Threads of one event loop, as many as ran at once so far; they end with this object."""

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._idle = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        weakref.finalize(self, _dismiss, self._jobs, at_once)

    async def run(self, prepare: Callable[[], A], receive: Receive) -> A:
        """The result of `prepare`, which runs to its end; ClientDisconnected if the client goes before its turn."""
        if self._free.locked():
            await cancel_on_disconnect(receive, asyncio.ensure_future(self._free.acquire()))
        else:
            await self._free.acquire()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[A] = loop.create_future()
        if self._idle:
            self._idle -= 1
        else:
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="prompt").start()
        self._jobs.put(partial(self._prepare, prepare, outcome, loop))
        return await outcome

    def _prepare(self, prepare: Callable[[], A], outcome: "asyncio.Future[A]", loop: asyncio.AbstractEventLoop) -> None:
        settle: Callable[[], None]
        try:
            settle = partial(outcome.set_result, prepare())
        except Exception as error:  # noqa: BLE001 - any error belongs to the caller that waits
            settle = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            loop.call_soon_threadsafe(self._end, outcome, settle)

    def _end(self, outcome: "asyncio.Future[Any]", settle: Callable[[], None]) -> None:
        self._idle += 1
        self._free.release()
        if not outcome.done():
            settle()


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # free its memory, which may be megabytes


def _dismiss(jobs: "SimpleQueue[_Job | None]", threads: int) -> None:
    for _ in range(threads):
        jobs.put(None)
