"""End what waits for the server of an LLM soon after that server has died."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.outages import Outages, waited_for
from nat.errors import BackendUnreachable

_WATCH_SECONDS = 1.0
_REFUSING_SECONDS = 5.0
"""Time that an external server may refuse connections while rollouts are played, if calls do not wait for it."""


async def check_llm_servers(builder: WorkflowBuilder) -> None:
    """Raise BackendUnreachable if a server that the harness started has died."""
    for name in builder.llm_names:
        (await builder.get_llm_provider(name)).check()


@asynccontextmanager
async def watched_servers(
    builder: WorkflowBuilder, playing: Callable[[], bool], *, waits: bool = True, answered: bool = False
) -> AsyncIterator[None]:
    """End the block by BackendUnreachable soon after an LLM's server died, since clients would go on to retry.

    If it `waits`, calls in the block wait for an external server that is away, until `eval.general.outage_timeout`;
    servers have `answered` if the run goes on.
    `playing` is true while rollouts are played.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    cancellations, dead = task.cancelling(), list[BackendUnreachable]()

    async def watch(outages: Outages) -> None:
        try:
            await _death(builder, playing, outages)
        except BackendUnreachable as error:
            dead.append(error)
            task.cancel()

    with waited_for(builder.outage_timeout if waits else 0, answered=answered) as outages:
        watcher = asyncio.create_task(watch(outages), name="watch of servers")
        try:
            yield
        except BaseException as error:
            if dead and task.uncancel() <= cancellations:
                raise dead[0] from error
            raise
        finally:
            watcher.cancel()
            await asyncio.wait({watcher})


async def _death(builder: WorkflowBuilder, playing: Callable[[], bool], outages: Outages) -> None:
    """Raise BackendUnreachable when a process that the harness started has ended, or an LLM's server is gone.

    An external server is asked only while rollouts are played: it may stop to listen while it trains.
    """
    refusing_since: float | None = None
    most = max(_REFUSING_SECONDS, outages.longest)
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        await check_llm_servers(builder)
        if outages.lost is not None:
            raise outages.lost
        try:
            if playing():
                await builder.probe_llms()
        except BackendUnreachable as error:
            refusing_since = refusing_since or time.monotonic()
            resolved = not isinstance(error.__cause__, socket.gaierror)
            if resolved and time.monotonic() - refusing_since >= most and playing():
                raise
        else:
            refusing_since = None
