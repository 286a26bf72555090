"""The model thread: the only one that uses the model, for sampling and for training.

Updates: `run_exclusive` lets every request that has begun finish with the weights it began with (its cached keys and
values come from them), holds the others back, runs the function, and continues with the new weights. So no answer
mixes two policies, and no request is refused. Requests that waited during an update begin before the next one, as far
as there is room, so consecutive updates starve no request.

Each set of weights has an engine. A request goes to the engine of the model name it requests; after an update,
requests that have not begun are looked up again, because the name may mean other weights now.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch

from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Request
from nat.backend.model import LoadedModel
from nat.errors import BackendError

logger = logging.getLogger(__name__)
_SMALL_MODEL = 50_000_000
"""With fewer parameters, several CPU threads make a sampling step slower."""
_STEPS_PER_TURN = 8
"""Steps in a row of one of several busy engines, because switching weights takes milliseconds in a deep model."""
T = TypeVar("T")
C = TypeVar("C")


class EnginePool:
    """Engines by the names that requests use: one, or those of a subclass. The model thread calls the last two."""

    def __init__(self, engine: Engine) -> None:
        """Begin with the engine of the weights with which the backend starts."""
        self._engine = engine

    def names(self) -> list[str]:
        """All served names, the first one of the first weights; of one model its plain name and `name@step`."""
        version = self._engine.policy_version
        return [version.rpartition("@")[0], version]

    def knows(self, name: str) -> bool:
        """True if a request may use this name."""
        return name in self.names()

    def engine(self, name: str) -> Engine:
        """The engine of the weights that the name means now; may load them.

        The only one also answers to a `name@step` that became outdated while the request waited.

        Raises:
            ModelNotServed: no weights have this name.

        """
        del name
        return self._engine

    def engines(self) -> Sequence[Engine]:
        """All loaded engines."""
        return (self._engine,)


class _Task(Generic[T]):
    """A function to be run on the model thread, and the future of its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.future: Future[T] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function())
        except BaseException as error:  # noqa: BLE001 - the caller handles it
            self.future.set_exception(error)


class Worker:
    """A `SamplingEngine` that runs engines on the model thread."""

    scores_prompts = True

    def __init__(self, engine: Engine, pool: EnginePool | None = None) -> None:
        self.engine = engine
        """The engine of the weights with which the backend started."""
        self.pool = EnginePool(engine) if pool is None else pool
        self._threads = torch.get_num_threads()
        self._small = engine.loaded.num_parameters < _SMALL_MODEL
        self._wakeup = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._exclusive: deque[_Task[Any]] = deque()
        self._admit_waiting = False
        """True after an update that requests waited for, until one step was made."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def loaded(self) -> LoadedModel:
        return self.engine.loaded

    @property
    def policy_version(self) -> str:
        return self.engine.policy_version

    def names(self) -> list[str]:
        return self.pool.names()

    def knows(self, name: str) -> bool:
        """True if a request may use this name."""
        return self.pool.knows(name)

    def submit(self, request: Request) -> None:
        self._post(self._commands, lambda: self._send(request))

    def cancel(self, request: Request) -> None:

        def drop() -> None:
            for engine in self.pool.engines():
                engine.cancel(request)

        self._post(self._commands, drop)

    def run_between(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the model thread between two steps; it must not change weights that are served."""
        task = _Task(function)
        self._post(self._commands, task.run)
        return task.future

    def run_exclusive(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the model thread while nothing is being sampled; first come, first served."""
        task = _Task(function)
        self._post(self._exclusive, task)
        return task.future

    def updating(self) -> AbstractContextManager[None]:
        """Nothing to undo: sampler and learner share the weights, and a failed update restores them."""
        return nullcontext()

    def serve(self, version: str) -> None:
        """Name the weights with which the backend started, after an update has changed them."""
        self.engine.policy_version = version

    def watch(self, on_failure: Callable[[BackendError], None]) -> None:
        """The model thread ends only with the process, so `on_failure` is never called."""

    def close(self) -> None:
        """Finish the current step, fail what is unfinished, end the thread."""
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
        self._thread.join()

    def _post(self, queue: deque[C], command: C) -> None:
        with self._wakeup:
            if self._closing:
                raise BackendError("the backend is shutting down")
            queue.append(command)
            self._wakeup.notify()

    def _run(self) -> None:
        while self._wait():
            # An update waits until all requests that have begun are finished.
            busy = self._step(draining=bool(self._exclusive) and not self._admit_waiting)
            self._admit_waiting = False
            if self._exclusive and not busy:
                self._update(self._exclusive.popleft())
        while self._commands:
            self._commands.popleft()()
        for task in self._exclusive:
            task.future.cancel()
        for engine in self.pool.engines():
            _fail_all(engine, BackendError("the backend was shut down before it had answered"))

    def _wait(self) -> bool:
        if not (self._commands or self._exclusive or self._busy(draining=False)):
            with self._wakeup:
                self._wakeup.wait_for(lambda: self._commands or self._exclusive or self._closing)
        return not self._closing

    def _busy(self, *, draining: bool) -> list[Engine]:
        engines = self.pool.engines()
        for engine in engines:
            engine.draining = draining
        return [engine for engine in engines if engine.has_work]

    def _step(self, *, draining: bool) -> bool:
        while self._commands:
            self._commands.popleft()()
        busy = self._busy(draining=draining)
        torch.set_num_threads(1 if self._small else self._threads)
        for engine in busy:
            self._steps(engine, 1 if len(busy) == 1 else _STEPS_PER_TURN)
        return bool(busy)

    def _update(self, task: _Task[Any]) -> None:
        # Until its end, what has not begun is held back, and the caches' memory is the update's.
        waiting = list[Request]()
        for engine in self.pool.engines():
            waiting += engine.withdraw()
            engine.release()
        torch.set_num_threads(self._threads)
        task.run()
        for request in waiting:
            self._send(request)
        self._admit_waiting = bool(waiting)

    def _send(self, request: Request) -> None:
        try:
            self.pool.engine(request.model).add(request)
        except BackendError as error:
            request.listener.on_failed(error)
        except Exception as error:
            logger.exception("the weights of %r cannot be loaded; requests for them get an error", request.model)
            request.listener.on_failed(error)

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
