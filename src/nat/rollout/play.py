"""One input through the workflow, under a deadline, with its steps collected."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any, Protocol

from nat.builder.context import ContextState, RuntimeTypeEnum
from nat.builder.intermediate_step_manager import OnNext
from nat.capture.policy import CapturePolicy, capturing
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import ANY_FAILURE, traceback_of
from nat.rollout.record import Rollout
from nat.secrets import redact

logger = logging.getLogger(__name__)

ITEM_TIMEOUT = "eval.general.item_timeout"


class Invocable(Protocol):
    """What is played: the workflow, or any other function."""

    async def ainvoke(self, value: Any) -> Any: ...


async def play(
    workflow: Invocable,
    item: EvalInputItem,
    *,
    seed: int | None,
    generation: int = 0,
    policy: CapturePolicy,
    deadline: float | None,
    deadline_option: str = ITEM_TIMEOUT,
    runtime_type: RuntimeTypeEnum = RuntimeTypeEnum.EVALUATE,
    on_step: OnNext | None = None,
) -> Rollout:
    """The rollout's record, whether it went well or not; only a cancellation from outside is passed on.

    `deadline_option` is what a user sets the deadline with; `on_step` hears of each step as it happens.
    """
    steps: list[IntermediateStep] = []
    state = ContextState(
        input_message=item.input_obj,
        runtime_type=runtime_type,
        workflow_run_id=f"{item.id}#{generation}",
        rollout_seed=seed,
    )
    state.intermediate_step_manager.subscribe(steps.append)
    if on_step is not None:
        state.intermediate_step_manager.subscribe(on_step)
    started_at, began = datetime.now(UTC), time.monotonic()
    with state.active(), capturing(policy):
        output, error = await _attempt(workflow, item, generation, deadline, deadline_option)
    # What a thread that lost its deadline still pushes is no part of the record.
    state.intermediate_step_manager.complete()
    return Rollout(
        item_id=str(item.id),
        generation=generation,
        output=output,
        steps=steps,
        error=error,
        seed=seed,
        started_at=started_at,
        seconds=time.monotonic() - began,
    )


async def _attempt(
    workflow: Invocable, item: EvalInputItem, generation: int, deadline: float | None, deadline_option: str
) -> tuple[Any, RolloutFailure | None]:
    """The output, or why there is none. A workflow that outlives its deadline has timed out, whatever it returns."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    cancellations = task.cancelling()
    began = time.monotonic()
    output: Any = None
    raised: BaseException | None = None
    try:
        async with asyncio.timeout(deadline) as timer:
            output = await workflow.ainvoke(item.input_obj)
    except asyncio.CancelledError as error:
        if task.cancelling() > cancellations:
            raise
        raised = error  # the workflow cancelled itself; nobody asked this task to end
    except ANY_FAILURE as error:  # the boundary of one rollout: its failure is a record
        raised = error
    # The timer cannot go off while code holds up the event loop; then the clock alone knows.
    if timer.expired() or (deadline is not None and time.monotonic() - began > deadline):
        message = f"no answer within {deadline:g} s ({deadline_option})"
        return None, _failure(item, generation, "timeout", "TimeoutError", message)
    if raised is not None:
        logger.debug("the workflow failed on item %s", item.id, exc_info=raised)
        cause = _innermost(raised)
        failure = _failure(item, generation, "raised", type(cause).__name__, redact(str(cause)))
        return None, failure.model_copy(update={"traceback": traceback_of(raised)})
    return output, None


def _failure(item: EvalInputItem, generation: int, kind: Any, error_type: str, message: str) -> RolloutFailure:
    return RolloutFailure(item_id=str(item.id), generation=generation, kind=kind, type=error_type, message=message)


def _innermost(error: BaseException) -> BaseException:
    """What a task group wrapped, if it wrapped one thing: its own text names nothing."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
