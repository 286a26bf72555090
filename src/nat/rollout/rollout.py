"""One run of the workflow on one item, under a deadline; failures are part of the record."""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from nat.builder.context import ContextState, OnNext, RuntimeTypeEnum
from nat.capture.context import CapturePolicy, capturing, stable_seed
from nat.capture.context import deadline as time_limit
from nat.capture.steps import failed_calls
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.data_models.rollout_failure import RolloutFailure, one_line
from nat.errors import ANY_FAILURE, traceback_of
from nat.secrets import excerpt, redact

logger = logging.getLogger(__name__)

_QUOTED = 60
"""Characters of an answer by which an error that quotes it is recognised."""

ITEM_TIMEOUT = "eval.general.item_timeout"


class Invocable(Protocol):
    """The workflow, or any other function."""

    async def ainvoke(self, value: Any) -> Any: ...


async def run_rollout(
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
    """Run the workflow and return the record, also of a failure; only a cancellation from outside is raised.

    `deadline_option` names the option of the deadline for error messages; `on_step` is called with each step.
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

    try:
        with state.active(), capturing(policy) as capture:
            try:
                output, error = await _attempt(workflow, item, generation, deadline, deadline_option, steps)
            finally:
                await capture.close()
    finally:
        # Steps that a thread adds after the deadline are not part of the record.
        state.intermediate_step_manager.complete()
    return Rollout(
        item_id=str(item.id),
        generation=generation,
        output=output,
        steps=steps,
        error=None if error is None else _with_failed_call(error, steps),
        seed=seed,
        started_at=started_at,
        seconds=time.monotonic() - began,
    )


async def _attempt(
    workflow: Invocable,
    item: EvalInputItem,
    generation: int,
    deadline: float | None,
    deadline_option: str,
    steps: Sequence[IntermediateStep],
) -> tuple[Any, RolloutFailure | None]:
    """The output or the failure. A workflow that exceeds its deadline has timed out, even if it returns an output."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    cancellations = task.cancelling()
    output: Any = None
    raised: BaseException | None = None
    try:
        async with time_limit(deadline) as limit:
            output = await workflow.ainvoke(item.input_obj)
    except asyncio.CancelledError as error:
        if task.cancelling() > cancellations:
            raise
        raised = error  # the workflow cancelled itself; this task was not cancelled
    except ANY_FAILURE as error:  # the boundary of one rollout: its failure is a record
        raised = error
    # The timer does not fire while code blocks the event loop, so the clock decides.
    if limit.is_over:
        message = f"no answer within {deadline:g} s ({deadline_option})"
        return None, failure_of(item, generation, "timeout", "TimeoutError", message)
    if raised is not None:
        logger.debug("the workflow failed on item %s", item.id, exc_info=raised)
        cause = raised
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]  # the group's text has no details
        address = getattr(vars(cause).get("request"), "url", None)  # in errors of SDKs
        unknown = address is not None and not failed_calls(steps)  # such as by a client of the agent's own
        said = f"{cause} (it was sent to {address}, by no captured call)" if unknown else str(cause)
        failure = failure_of(item, generation, "raised", type(cause).__name__, redact(said))
        return None, failure.model_copy(update={"traceback": traceback_of(raised)})
    return output, None


def failure_of(item: EvalInputItem, generation: int, kind: Any, error_type: str, message: str) -> RolloutFailure:
    """The failure of an item's rollout."""
    return RolloutFailure(item_id=str(item.id), generation=generation, kind=kind, type=error_type, message=message)


def _with_failed_call(failure: RolloutFailure, steps: Sequence[IntermediateStep]) -> RolloutFailure:
    """Say what the model's server answered, if the last call failed; clients often hide that behind their own error."""
    ends = [step for step in steps if step.event_type is IntermediateStepType.LLM_END or failed_calls([step])]
    calls = failed_calls(ends[-1:])
    if not calls or calls[0].error[:_QUOTED] in failure.message:
        return failure
    call = calls[0]
    status = "" if call.status is None else f"status {call.status}: "
    seen = f"the last call of LLM '{call.llm_name or call.model}' failed: {status}{excerpt(one_line(call.error), 200)}"
    return failure.model_copy(update={"message": f"{failure.message} ({seen})"})


def training_seed(seed: int, pass_index: int, item_id: str) -> int:
    """A seed that differs in each pass over the data, because the generations of an example must differ."""
    return stable_seed(seed, "train", pass_index, item_id)


def held_out_seed(seed: int, item_id: str) -> int:
    """A seed that is equal in each pass, so that scores before and after are comparable; repetitions differ by id."""
    return stable_seed(seed, "held-out", item_id)
