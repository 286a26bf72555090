"""Name a rollout that lasts, and end what waits for the server of an LLM soon after that server has died."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from nat.builder.workflow_builder import WorkflowBuilder
from nat.errors import BackendUnreachable

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_LATE_SECONDS = 5.0


BLOCKED = (
    "the event loop has been blocked for %.0f s, in which no rollout advanced and no deadline fired\n  → await an "
    "async client in the workflow, or make it a plain `def`, which runs in a thread; PYTHONASYNCIODEBUG=1 names it"
)


class LongRollout:
    """Names the first rollout that plays for long, from a thread, since its agent may block the event loop."""

    def __init__(self, limit: str, *, seconds: float) -> None:
        """`limit` says when rollouts are ended, and by which option."""
        self._limit = limit
        self._seconds = seconds
        self._playing: dict[object, tuple[str, float]] = {}
        self._watched = False

    @contextmanager
    def playing(self, example: str) -> Iterator[None]:
        """A rollout plays inside the block."""
        self._playing[rollout := object()] = (example, time.monotonic() + self._seconds)
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._watch, name="long rollouts", daemon=True).start()
        try:
            yield
        finally:
            del self._playing[rollout]

    def _watch(self) -> None:
        """Until nothing plays, or for good once a rollout was named."""
        while oldest := next(iter(list(self._playing.values())), None):
            if (left := oldest[1] - time.monotonic()) <= 0:
                logger.warning("example %s has been playing for %.0f s; %s", oldest[0], self._seconds, self._limit)
                return
            time.sleep(min(left, 1.0))
        self._watched = False


async def check_llm_servers(builder: WorkflowBuilder) -> None:
    """Raise BackendUnreachable if a server that the harness started has died."""
    for name in builder.llm_names:
        (await builder.get_llm_provider(name)).check()


@asynccontextmanager
async def watched_servers(builder: WorkflowBuilder, *, waits: bool = True) -> AsyncIterator[None]:
    """End the block by BackendUnreachable soon after an LLM's server died, since clients would go on to retry.

    If it `waits`, calls in the block wait for a server that is away, until `eval.general.outage_timeout`. Code that
    blocks the event loop is told, since no rollout advances meanwhile.
    """
    from nat.capture.waiting import waited_for  # imports the SDK, which no registration needs

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "a coroutine runs in a task"
    cancellations, dead = task.cancelling(), list[BackendUnreachable]()

    def end(error: BackendUnreachable) -> None:
        if not dead:
            dead.append(error)
            task.cancel()

    async def watch() -> None:
        try:
            while True:
                due = loop.time() + _WATCH_SECONDS
                await asyncio.sleep(_WATCH_SECONDS)
                if (late := loop.time() - due) > _LATE_SECONDS:
                    logger.warning(BLOCKED, late)
                await check_llm_servers(builder)
        except BackendUnreachable as error:
            end(error)

    def give_up(error: BackendUnreachable) -> None:
        loop.call_soon_threadsafe(end, error)

    with waited_for(builder.outage_timeout if waits else 0, give_up):
        watcher = asyncio.create_task(watch(), name="watch of servers")
        try:
            yield
        except BaseException as error:
            if dead and task.uncancel() <= cancellations:
                raise dead[0] from error
            raise
        finally:
            watcher.cancel()
            await asyncio.wait({watcher})
