"""Whether the servers of a run are alive; each check raises BackendUnreachable if one is not."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import ANY_FAILURE, BackendUnreachable, NoTrajectories, TooManyFailures
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.rollout.remote import open_remote
from nat.rollout.session import rollouts_open

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_REFUSING_SECONDS = 5.0
"""Time that an external server may refuse connections while rollouts are played, since it may be restarting."""
_REAPED_SECONDS = 0.5
"""A connection to a killed process breaks before its exit code is known."""


async def check_health(adapter: TrainerAdapter) -> None:
    """Raise BackendUnreachable unless the backend can take jobs."""
    if not await adapter.is_healthy():
        raise BackendUnreachable(
            f"{type(adapter).__name__} reports an unhealthy training backend",
            hint="start the backend, and check address and key in the adapter's configuration",
        )


async def check_llm_servers(config: Config, builder: WorkflowBuilder) -> None:
    """Raise BackendUnreachable if a server that the harness started has died."""
    for name in config.llms:
        (await builder.get_llm_provider(name)).check()


async def check_servers(given: FinetuneRunConfig, builder: WorkflowBuilder, adapter: TrainerAdapter) -> None:
    """Raise BackendUnreachable if an LLM's server, the backend or the run's endpoint does not answer."""
    await builder.probe_llms()
    await check_health(adapter)
    if given.endpoint is not None:
        async with open_remote(given.endpoint, trains=True):
            pass


@asynccontextmanager
async def watched_servers(config: Config, builder: WorkflowBuilder) -> AsyncIterator[None]:
    """End the block by BackendUnreachable soon after an LLM's server died, since clients would go on to retry."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    cancellations, dead = task.cancelling(), list[BackendUnreachable]()

    async def watch() -> None:
        try:
            await _death(config, builder)
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


async def _death(config: Config, builder: WorkflowBuilder) -> None:
    """Raise BackendUnreachable when a process that the harness started has ended, or an LLM's server is gone.

    An external server is asked only while rollouts are played: it may stop to listen while it trains.
    """
    refusing_since: float | None = None
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        await check_llm_servers(config, builder)
        try:
            if rollouts_open():
                await builder.probe_llms()
        except BackendUnreachable as error:
            refusing_since = refusing_since or time.monotonic()
            resolved = not isinstance(error.__cause__, socket.gaierror)
            if resolved and time.monotonic() - refusing_since >= _REFUSING_SECONDS and rollouts_open():
                raise
        else:
            refusing_since = None


async def dead_server(
    error: BaseException, config: Config, given: FinetuneRunConfig, builder: WorkflowBuilder, adapter: TrainerAdapter
) -> BackendUnreachable | None:
    """The dead server because of which a run has failed, if there is one."""
    if not isinstance(error, Exception):
        return None
    unreachable = error if isinstance(error, BackendUnreachable) else None
    try:
        if unreachable is not None:
            await asyncio.sleep(_REAPED_SECONDS)
        await check_llm_servers(config, builder)
        if isinstance(error, NoTrajectories | TooManyFailures):
            await check_servers(given, builder, adapter)
    except BackendUnreachable as cause:
        return cause
    except ANY_FAILURE:  # the boundary of a plug-in's check, which must not hide why the run ended
        logger.warning("the servers could not be checked", exc_info=True)
    return unreachable
