"""The sampling engine that is vLLM: three threads, and the order of an update.

    event loop     sends requests to vLLM and fills their sequences
    model thread   trains the learner's model, writes its weights, has vLLM load them
    watch          waits for the end of vLLM's process

While the learner trains, vLLM goes on answering with the old weights. For the hand-over, new requests are held, begun
ones finish, vLLM loads the weights, and a probe compares it with the learner. `serve` confirms the new version; without
it, vLLM gets back the weights that the learner has restored. After a failed load no request is sent: our own vLLM is
started again, and a server of the user's ends this one.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import torch

from nat.backend.inference.sequence import Request
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.loss import ByRow
from nat.backend.vllm.checks import check_probe, check_server, probe_row
from nat.backend.vllm.client import HEALTH, Control
from nat.backend.vllm.hand_over import HandOver
from nat.backend.vllm.sampling import Caller
from nat.backend.vllm.server import VllmServer
from nat.backend.vllm.wire import Served
from nat.errors import BackendError, EngineFailed, WeightsReplaced, describe_error

logger = logging.getLogger(__name__)

T = TypeVar("T")
Make = Callable[[Control, str], HandOver | None]
"""Makes what hands weights over, from control calls and vLLM's name of the base model; None if nothing is trained."""


class VllmEngine:
    """A `SamplingEngine` whose tokens come from vLLM."""

    scores_prompts = False

    def __init__(self, loaded: LoadedModel, server: VllmServer, make_hand_over: Make, *, version: str) -> None:
        """Start nothing yet; `start` follows once the learner's weights are those to serve."""
        self.loaded = loaded
        self.server = server
        self.policy_version = version
        self._make_hand_over = make_hand_over
        self.hand_over: HandOver | None = None
        """Gives vLLM the learner's weights; made by `start`, and None if nothing is trained."""
        self._served = Served("")
        self._pending = False
        """True while vLLM has weights that no `serve` has confirmed."""
        self._failure: BackendError | None = None
        self._on_failure: Callable[[BackendError], None] = lambda _: None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._control = Control(server.address, server.explain)
        self._http = server.address.async_client()
        self._caller = Caller(self._http, server.explain, loaded)
        # For the event loop only:
        self._requests: dict[Request, asyncio.Task[None]] = {}
        self._begun: set[asyncio.Task[None]] = set()
        """Those that were sent to vLLM; a hand-over waits for them."""
        self._open = asyncio.Event()
        """Cleared while a hand-over holds new requests."""
        self._open.set()
        threads = torch.get_num_threads()
        self._learner = ThreadPoolExecutor(1, "model", initializer=lambda: torch.set_num_threads(threads))

    def start(self) -> None:
        """Start vLLM, check that it fits, and have it load the learner's weights."""
        self.server.watch(self._fail)
        self.server.start()
        beginning = self._learner.submit(self._begin)
        try:
            beginning.result()
        except BaseException:
            self.server.stop()  # so that a call that still waits for it ends, too
            raise

    def names(self) -> list[str]:
        """The model's plain name, which always means the newest weights, and `name@step`."""
        return [self.policy_version.rpartition("@")[0], self.policy_version]

    def knows(self, name: str) -> bool:
        return name in self.names()

    def submit(self, request: Request) -> None:
        self._check_alive()
        self._loop.call_soon_threadsafe(self._send, request)

    def cancel(self, request: Request) -> None:
        """Drop a request whose client has disconnected; vLLM aborts it when its connection closes."""
        self._loop.call_soon_threadsafe(self._drop, request)

    def run_exclusive(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the model thread; requests always go on beside it, except during a hand-over."""
        return self._learner.submit(function)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Around an update; if it fails after the hand-over, vLLM gets the old weights back."""
        try:
            yield
        finally:
            self._settle()

    def score(self, loaded: LoadedModel, rows: Sequence[Row]) -> ByRow:
        """Hand the learner's weights over, then have vLLM score rows by the path that answers requests."""
        del loaded  # the model that was handed over
        assert self.hand_over is not None, "an engine that trains hands weights over"
        self._await(self._hold())
        self._pending = True
        self.hand_over.load()
        return self._await(self._caller.score(rows, self.hand_over.served))

    def serve(self, version: str) -> None:
        """Answer with the weights that were handed over, under this version."""
        handed_over, self._pending = self._pending, False
        self.policy_version = version
        if handed_over and self.hand_over is not None:
            self._served = self.hand_over.served
            self.hand_over.keep()

    def watch(self, on_failure: Callable[[BackendError], None]) -> None:
        """Have `on_failure` called when vLLM has ended or cannot be used any more."""
        self._on_failure = on_failure
        if self._failure is not None:
            on_failure(self._failure)

    def close(self) -> None:
        """Cancel what waits for the model thread, fail what is being answered, stop vLLM; later calls do nothing."""
        if self._loop.is_closed():
            return
        self._failure = self._failure or BackendError("the backend was shut down before it had answered")
        self._await(self._fail_requests())  # a hand-over waits for them
        self._learner.shutdown(cancel_futures=True)
        self._await(self._http.aclose())
        self._control.close()
        self.server.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begin(self) -> None:
        self._served = Served(check_server(self._control, context=self.loaded.max_seq_length))
        self.hand_over = self._make_hand_over(self._control, self._served.model)
        if self.hand_over is not None:
            self._load(self.hand_over)
        row = probe_row(self.loaded)
        check_probe(self.loaded, row, self._await(self._caller.score([row], self._served)))

    async def _hold(self) -> None:
        self._open.clear()
        while self._begun:
            await asyncio.wait(self._begun)

    def _settle(self) -> None:
        try:
            if self._pending:
                self._restore()
        finally:
            self._pending = False
            self._loop.call_soon_threadsafe(self._open.set)

    def _restore(self) -> None:
        hand_over = self.hand_over
        assert hand_over is not None, "something was handed over"
        if self._failure is not None:
            return
        try:
            hand_over.undo()
            self._served = hand_over.served
        except Exception:  # with the weights of a failed update it must not answer, whatever went wrong
            logger.exception("vLLM cannot go back to the weights before the update")
            try:
                self.server.restart()
                hand_over.reset()
                self._load(hand_over)
            except EngineFailed as error:
                self._fail(error)
            except Exception as error:
                logger.exception("nor could it be started again with them")
                self._fail(
                    EngineFailed(
                        f"vLLM cannot get back the weights before a failed update: {describe_error(error)}",
                        hint="correct this, then resume the run from its last checkpoint",
                    )
                )

    def _load(self, hand_over: HandOver) -> None:
        hand_over.load()
        hand_over.keep()
        self._served = hand_over.served

    def _send(self, request: Request) -> None:
        task = self._loop.create_task(self._answer(request))
        self._requests[request] = task
        task.add_done_callback(lambda _: self._requests.pop(request, None))

    def _drop(self, request: Request) -> None:
        if (task := self._requests.get(request)) is not None:
            task.cancel()

    async def _answer(self, request: Request) -> None:
        try:
            while not self._open.is_set():  # it may be held again before this one goes on
                await self._open.wait()
            if (task := asyncio.current_task()) is not None:
                self._begun.add(task)
                task.add_done_callback(self._begun.discard)
            self._check_alive()
            request.policy_version = self.policy_version
            await self._caller.answer(request, self._served)
        except BaseExceptionGroup as group:
            error = group.exceptions[0]
            trained = self.hand_over is not None  # otherwise a server of the user's may come back
            if isinstance(error, WeightsReplaced):  # no answer can be right any more
                self._fail(error)
            elif trained and isinstance(error, EngineFailed) and (end := await self._death()) is not None:
                self._fail(end)
            request.listener.on_failed(self._failure or error)
        except Exception as error:  # noqa: BLE001 - the boundary of a request: its failure goes to its listener
            request.listener.on_failed(error)
        else:
            request.listener.on_finished()

    async def _death(self) -> EngineFailed | None:
        """Why vLLM cannot answer any more; None if it can, so that a failure was one request's own."""
        try:
            (await self._http.get(HEALTH)).raise_for_status()
        except httpx.HTTPError as error:
            return await asyncio.to_thread(self.server.explain, error)
        return None

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: BackendError) -> None:
        if self._failure is None:
            self._failure = failure
            logger.error("%s", failure)
            self._on_failure(failure)

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _fail_requests(self) -> None:
        assert self._failure is not None, "the engine is closing"
        for request, task in list(self._requests.items()):
            task.cancel()
            request.listener.on_failed(self._failure)
        await asyncio.gather(*self._requests.values(), return_exceptions=True)
