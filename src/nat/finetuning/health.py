"""Whether the servers of a run are alive; each check raises BackendUnreachable if one is not."""

import asyncio
import logging

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import ANY_FAILURE, BackendUnreachable, NoTrajectories, TooManyFailures
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.rollout.remote import open_remote
from nat.rollout.server_watch import check_llm_servers

logger = logging.getLogger(__name__)

_REAPED_SECONDS = 0.5
"""A connection to a killed process breaks before its exit code is known."""


async def check_health(adapter: TrainerAdapter) -> None:
    """Raise BackendUnreachable unless the backend can take jobs."""
    if not await adapter.is_healthy():
        raise BackendUnreachable(
            f"{type(adapter).__name__} reports an unhealthy training backend",
            hint="start the backend, and check address and key in the adapter's configuration",
        )


async def dead_server(
    error: BaseException, given: FinetuneRunConfig, builder: WorkflowBuilder, adapter: TrainerAdapter
) -> BackendUnreachable | None:
    """The dead server because of which a run has failed, if there is one."""
    if not isinstance(error, Exception):
        return None
    unreachable = error if isinstance(error, BackendUnreachable) else None
    try:
        if unreachable is not None:
            await asyncio.sleep(_REAPED_SECONDS)
        await check_llm_servers(builder)
        if isinstance(error, NoTrajectories | TooManyFailures):
            await builder.probe_llms()
            await check_health(adapter)
            if given.endpoint is not None:
                async with open_remote(given.endpoint, trains=True):
                    pass
    except BackendUnreachable as cause:
        return cause
    except ANY_FAILURE:  # the boundary of a plug-in's check, which must not hide why the run ended
        logger.warning("the servers could not be checked", exc_info=True)
    return unreachable
