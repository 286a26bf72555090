"""The model thread: the only one that touches the model, for sampling and for training.

Rule for updates: `run_exclusive` lets every request that has begun finish with the weights it began with (their
cached keys and values come from those weights), holds all others, runs the function, and goes on with the new
weights. So an answer is never a mixture of two policies, and no request is refused. Who waited while an update ran
begins before the next one, as far as there is room, so that updates in a row starve nobody.

Each set of weights has an engine. A request goes to the engine of the name that it asks for; after an update those
that have not begun are sent anew, because the name may mean other weights now.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import torch

from nat.backend.inference.engine import Engine
from nat.backend.inference.pool import Pool, SinglePool
from nat.backend.inference.sequence import Request
from nat.backend.model import LoadedModel
from nat.errors import BackendError

logger = logging.getLogger(__name__)
_SMALL_MODEL = 50_000_000
"""Parameters below which a sampling step on several CPU threads spends more on waiting than it gains."""
_TURN = 8
"""Steps that one of several busy engines does in a row: switching weights costs milliseconds in a deep model."""
T = TypeVar("T")
C = TypeVar("C")


class _Task(Generic[T]):
    """A function that waits for the model thread, and the future of its result."""

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
    """Runs engines on a thread of its own; every method may be called from any thread."""

    def __init__(self, engine: Engine, pool: Pool | None = None) -> None:
        self.engine = engine
        """That of the weights with which the backend started."""
        self.pool: Pool = SinglePool(engine) if pool is None else pool
        self._all_threads = torch.get_num_threads()
        small = engine.loaded.num_parameters < _SMALL_MODEL
        self._sampling_threads = 1 if small else self._all_threads
        self._news = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._exclusive: deque[_Task[Any]] = deque()
        self._let_in = False
        """True after an update that someone waited for, until one step was made."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def loaded(self) -> LoadedModel:
        """The model with the weights with which the backend started."""
        return self.engine.loaded

    @property
    def policy_version(self) -> str:
        """Name of the weights that a request without a name gets now."""
        return self.engine.policy_version

    def submit(self, request: Request) -> None:
        """Queue a request; its listener hears the rest. ValueError if it does not fit the model."""
        self.engine.check(request)
        self._post(self._commands, lambda: self._send(request))

    def cancel(self, request: Request) -> None:
        """Drop a request whose asker has gone; its listener hears nothing more."""
        self._post(self._commands, lambda: self._drop(request))

    def run_between(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the model thread between two steps; it must change no weights that answer."""
        task = _Task(function)
        self._post(self._commands, task.run)
        return task.future

    def run_exclusive(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the model thread while nothing is being sampled; first come, first served."""
        task = _Task(function)
        self._post(self._exclusive, task)
        return task.future

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
            busy = self._busy()
            for engine in busy:
                self._steps(engine, 1 if len(busy) == 1 else _TURN)
            self._let_in = False
            if not busy and self._exclusive:
                self._update(self._exclusive.popleft())
        while self._commands:
            self._commands.popleft()()
        for task in self._exclusive:
            task.future.cancel()
        for engine in self.pool.engines():
            _fail_all(engine, BackendError("the backend was shut down before it had answered"))

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when closing."""
        if not (self._commands or self._exclusive or self._busy()):
            with self._news:
                self._news.wait_for(lambda: self._commands or self._exclusive or self._closing)
        return not self._closing

    def _busy(self) -> list[Engine]:
        """Engines with something to do, once they know whether an update waits."""
        engines = self.pool.engines()
        for engine in engines:
            engine.draining = bool(self._exclusive) and not self._let_in
        return [engine for engine in engines if engine.has_work]

    def _update(self, task: _Task[Any]) -> None:
        waiting = [request for engine in self.pool.engines() for request in engine.withdraw()]
        torch.set_num_threads(self._all_threads)
        task.run()
        torch.set_num_threads(self._sampling_threads)
        for engine in self.pool.engines():
            engine.forget()
        for request in waiting:
            self._send(request)
        self._let_in = bool(waiting)

    def _send(self, request: Request) -> None:
        """Give a request to the weights that its name means now."""
        try:
            self.pool.engine(request.model).add(request)
        except BackendError as error:
            request.listener.on_failed(error)
        except Exception as error:
            logger.exception("the weights of %r cannot be loaded; who asks for them is told so", request.model)
            request.listener.on_failed(error)

    def _drop(self, request: Request) -> None:
        for engine in self.pool.engines():
            engine.cancel(request)

    @staticmethod
    def _steps(engine: Engine, count: int) -> None:
        try:
            for _ in range(count):
                for request in engine.step() if engine.has_work else ():
                    request.listener.on_finished()
        except Exception as error:
            logger.exception("a sampling step failed; its requests are answered with an error")
            _fail_all(engine, error)


def _fail_all(engine: Engine, error: BaseException) -> None:
    failed = engine.requests
    engine.reset()
    for request in failed:
        request.listener.on_failed(error)
