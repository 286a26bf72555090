"""Prepare prompts in threads, few at a time and each within a deadline, while the event loop answers others.

A chat template is a program that comes with the model, and a slow one would block every request. So it runs in a
thread, which is interrupted at the deadline. Tokenising follows; its time is bounded by the length of the text, so it
runs to its end. Threads are kept: starting one blocks the event loop, which took a third of a short call.
"""

import asyncio
import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")

SECONDS = 10.0
"""Seconds to prepare one prompt after its wait for a thread."""
AT_ONCE = 4
"""Prompts in preparation; the interpreter runs one at a time, but a tokenizer releases it."""


class PromptThreads:
    """Threads of one event loop, as many as ran at once so far; they end with this object."""

    def __init__(self, *, seconds: float = SECONDS, at_once: int = AT_ONCE) -> None:
        self.seconds = seconds
        self._free = asyncio.Semaphore(at_once)
        self._idle = 0
        self._jobs: SimpleQueue[_Job[Any, Any] | None] = SimpleQueue()
        weakref.finalize(self, _dismiss, self._jobs, at_once)

    async def run(self, first: Callable[[], A], then: Callable[[A], B]) -> B:
        """`then(first())`, in a thread; only `first` can be interrupted.

        Raises:
            TimeoutError: it took too long; `first` is ended if it still runs.

        """
        await self._free.acquire()
        job = _Job(first, then, on_end=self._on_end)
        if self._idle:
            self._idle -= 1
        else:
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="prompt").start()
        self._jobs.put(job)
        try:
            async with asyncio.timeout(self.seconds):
                return await job.outcome
        finally:
            job.interrupt()

    def _on_end(self) -> None:
        self._idle += 1
        self._free.release()


def _work(jobs: "SimpleQueue[_Job[Any, Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # free its memory, which may be megabytes


def _dismiss(jobs: "SimpleQueue[_Job[Any, Any] | None]", threads: int) -> None:
    for _ in range(threads):
        jobs.put(None)


class _Interrupted(BaseException):
    """Raised inside of a thread from outside; nothing in a template catches it."""


class _Job(Generic[A, B]):
    def __init__(self, first: Callable[[], A], then: Callable[[A], B], *, on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[B] = self._loop.create_future()
        self._first, self._then, self._on_end = first, then, on_end
        self._beginning = threading.Lock()
        self._thread: int | None = None
        self._decided = threading.Lock()
        """Taken once: by the thread when `first` has ended, or by an interruption before that."""

    def interrupt(self) -> None:
        """End `first` if it still runs or has not begun."""
        if not self._decided.acquire(blocking=False):
            return
        with self._beginning:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Interrupted))

    def run(self) -> None:
        """Both steps, in a thread."""
        try:
            self._begin()
            settle = self._settled()
        except _Interrupted:
            settle = self.outcome.cancel
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            self._loop.call_soon_threadsafe(self._end, settle)

    def _begin(self) -> None:
        with self._beginning:
            if self._decided.locked():
                raise _Interrupted
            self._thread = threading.get_ident()

    def _settled(self) -> Callable[[], Any]:
        try:
            try:
                made = self._first()
            except Exception:
                self._leave_first()
                raise
            self._leave_first()
            return partial(self.outcome.set_result, self._then(made))
        except Exception as error:  # noqa: BLE001 - any error belongs to the caller that waits
            return partial(self.outcome.set_exception, error)

    def _leave_first(self) -> None:
        if not self._decided.acquire(blocking=False):
            while True:  # wait for the interruption, which must not hit `then`
                time.sleep(0)

    def _end(self, settle: Callable[[], Any]) -> None:
        self._on_end()
        if not self.outcome.done():
            settle()
