"""The agent from the outside: one input, one answer, marked as one run of the workflow."""

import uuid
from typing import Any

from nat.builder.component_utils import WORKFLOW_COMPONENT_NAME
from nat.builder.context import Context
from nat.builder.function import Function
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData


class Workflow:
    """Runs the entry function between WORKFLOW_START and WORKFLOW_END, which stand outside of any function."""

    def __init__(self, function: Function) -> None:
        self.function = function

    async def ainvoke(self, value: Any, to_type: Any = None) -> Any:
        """The answer to one input, converted to `to_type` if that is given."""
        push = Context.get().intermediate_step_manager.push_intermediate_step
        event: dict[str, Any] = {"UUID": str(uuid.uuid4()), "name": WORKFLOW_COMPONENT_NAME}
        start = StreamEventData(input=value)
        push(IntermediateStepPayload(event_type=IntermediateStepType.WORKFLOW_START, data=start, **event))
        result = None
        try:
            result = await self.function.ainvoke(value, to_type=to_type)
        finally:
            end = StreamEventData(input=value, output=result)
            push(IntermediateStepPayload(event_type=IntermediateStepType.WORKFLOW_END, data=end, **event))
        return result
