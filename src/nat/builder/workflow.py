"""A run of the whole workflow: one input, one output, between WORKFLOW_START and WORKFLOW_END."""

import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from nat.builder.context import Context
from nat.builder.function import Function
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME


class Workflow:
    """Runs the entry function; its START and END steps belong to no function."""

    def __init__(self, function: Function) -> None:
        self.function = function

    async def ainvoke(self, value: Any, to_type: Any = None) -> Any:
        """The output for one input, converted to `to_type` if given."""
        with _run(value) as end:
            end.output = await self.function.ainvoke(value, to_type=to_type)
        return end.output

    async def astream(self, value: Any) -> AsyncGenerator[Any, None]:
        """The output for one input, in chunks."""
        with _run(value) as end:
            end.output = []
            async for chunk in self.function.astream(value):
                end.output.append(chunk)
                yield chunk


@contextmanager
def _run(value: Any) -> Iterator[StreamEventData]:
    """Push WORKFLOW_START, and WORKFLOW_END with the output that the block has set."""
    push = Context.get().intermediate_step_manager.push_intermediate_step
    span = {"UUID": str(uuid.uuid4()), "name": WORKFLOW_COMPONENT_NAME}
    start, end = StreamEventData(input=value), StreamEventData(input=value, output=None)
    push(IntermediateStepPayload(event_type=IntermediateStepType.WORKFLOW_START, data=start, **span))
    try:
        yield end
    finally:
        push(IntermediateStepPayload(event_type=IntermediateStepType.WORKFLOW_END, data=end, **span))
