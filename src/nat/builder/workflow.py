"""A run of the whole workflow: one input, one output, between WORKFLOW_START and WORKFLOW_END."""

import uuid
from collections.abc import AsyncGenerator
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
        span, result = _begin(value), None
        try:
            result = await self.function.ainvoke(value, to_type=to_type)
        finally:
            _end(span, value, result)
        return result

    async def astream(self, value: Any) -> AsyncGenerator[Any, None]:
        """The output for one input, in chunks."""
        span, chunks = _begin(value), []
        try:
            async for chunk in self.function.astream(value):
                chunks.append(chunk)
                yield chunk
        finally:
            _end(span, value, chunks)


def _begin(value: Any) -> str:
    """Push WORKFLOW_START and return the id of its span."""
    span = str(uuid.uuid4())
    _push(IntermediateStepType.WORKFLOW_START, span, StreamEventData(input=value))
    return span


def _end(span: str, value: Any, output: Any) -> None:
    _push(IntermediateStepType.WORKFLOW_END, span, StreamEventData(input=value, output=output))


def _push(event: IntermediateStepType, span: str, data: StreamEventData) -> None:
    payload = IntermediateStepPayload(event_type=event, data=data, UUID=span, name=WORKFLOW_COMPONENT_NAME)
    Context.get().intermediate_step_manager.push_intermediate_step(payload)
