"""End what waits for the server of an LLM soon after that server has died."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from nat.builder.workflow_builder import WorkflowBuilder
from nat.errors import BackendUnreachable

_WATCH_SECONDS = 1.0
_REFUSING_SECONDS = 5.0
"""Time that an external server may refuse connections while rollouts are played, since it may be restarting."""


async def check_llm_servers(builder: WorkflowBuilder) -> None:
    """Raise BackendUnreachable if a server that the harness started has died."""
    for name in builder.llm_names:
        (await builder.get_llm_provider(name)).check()


@asynccontextmanager
async def watched_servers(builder: WorkflowBuilder, playing: Callable[[], bool]) -> AsyncIterator[None]:
    """End the block by BackendUnreachable soon after an LLM's server died, since clients would go on to retry.

    `playing` is true while rollouts are played.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    cancellations, dead = task.cancelling(), list[BackendUnreachable]()

    async def watch() -> None:
        try:
            await _death(builder, playing)
        except BackendUnreachable as error:
            dead.append(error)
            task.cancel()

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


async def _death(builder: WorkflowBuilder, playing: Callable[[], bool]) -> None:
    """Raise BackendUnreachable when a process that the harness started has ended, or an LLM's server is gone.

    An external server is asked only while rollouts are played: it may stop to listen while it trains.
    """
    refusing_since: float | None = None
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        await check_llm_servers(builder)
        try:
            if playing():
                await builder.probe_llms()
        except BackendUnreachable as error:
            refusing_since = refusing_since or time.monotonic()
            resolved = not isinstance(error.__cause__, socket.gaierror)
            if resolved and time.monotonic() - refusing_since >= _REFUSING_SECONDS and playing():
                raise
        else:
            refusing_since = None
