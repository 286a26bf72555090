"""The model thread: the only one that touches the model, for sampling and for training.

Rule for updates: `run_exclusive` lets every request that has begun finish with the weights it began with (their
cached keys and values come from those weights), holds all others, runs the function, and goes on with the new
weights. So an answer is never a mixture of two policies, and no request is refused.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import torch

from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Request
from nat.errors import BackendError

logger = logging.getLogger(__name__)
_SMALL_MODEL = 50_000_000
"""Parameters below which a sampling step on several CPU threads spends more on waiting than it gains."""
T = TypeVar("T")
C = TypeVar("C")


class _Exclusive(Generic[T]):
    """A function that waits for the model to be idle, and the future of its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.future: Future[T] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller
            self.future.set_exception(error)


class Worker:
    """Runs an engine on a thread of its own; every method may be called from any thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._all_threads = torch.get_num_threads()
        small = engine.loaded.num_parameters < _SMALL_MODEL
        self._sampling_threads = 1 if small else self._all_threads
        self._news = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._exclusive: deque[_Exclusive[Any]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def policy_version(self) -> str:
        """`name@step` of the weights that a request gets now."""
        return self.engine.policy_version

    def submit(self, request: Request) -> None:
        """Queue a request; its listener hears the rest. ValueError if it does not fit the model."""
        self.engine.check(request)
        self._post(self._commands, lambda: self.engine.add(request))

    def cancel(self, request: Request) -> None:
        """Drop a request whose asker has gone; its listener hears nothing more."""
        self._post(self._commands, lambda: self.engine.cancel(request))

    def run_exclusive(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the model thread while nothing is being sampled; first come, first served."""
        exclusive = _Exclusive(function)
        self._post(self._exclusive, exclusive)
        return exclusive.future

    def close(self) -> None:
        """Finish the current step, fail what is unfinished, end the thread."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join()

    def _post(self, queue: deque[C], command: C) -> None:
        with self._news:
            if self._closing:
                raise BackendError("the backend is shutting down")
            queue.append(command)
            self._news.notify()

    def _run(self) -> None:
        torch.set_num_threads(self._sampling_threads)
        while self._wait():
            while self._commands:
                self._commands.popleft()()
            self.engine.draining = bool(self._exclusive)
            if self.engine.has_work:
                self._step()
            elif self._exclusive:
                torch.set_num_threads(self._all_threads)
                self._exclusive.popleft().run()
                torch.set_num_threads(self._sampling_threads)
        while self._commands:
            self._commands.popleft()()
        for exclusive in self._exclusive:
            exclusive.future.cancel()
        self._fail_all(BackendError("the backend was shut down before it had answered"))

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when closing."""
        self.engine.draining = bool(self._exclusive)
        if not (self._commands or self._exclusive or self.engine.has_work):
            with self._news:
                self._news.wait_for(lambda: self._commands or self._exclusive or self._closing)
        return not self._closing

    def _step(self) -> None:
        try:
            finished = self.engine.step()
        except Exception as error:
            logger.exception("a sampling step failed; its requests are answered with an error")
            self._fail_all(error)
            return
        for request in finished:
            request.listener.on_finished()

    def _fail_all(self, error: BaseException) -> None:
        failed = self.engine.requests
        self.engine.reset()
        for request in failed:
            request.listener.on_failed(error)
