"""End what waits for the server of an LLM soon after that server has died."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import waited_for
from nat.errors import BackendUnreachable

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_LATE_SECONDS = 5.0


BLOCKED = (
    "the event loop has been blocked for %.0f s, in which no rollout advanced and no deadline fired\n  → await an "
    "async client in the workflow, or make it a plain `def`, which runs in a thread; PYTHONASYNCIODEBUG=1 names it"
)


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
