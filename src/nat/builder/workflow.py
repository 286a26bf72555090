"""The agent from the outside: one input, one answer, marked as one run of the workflow."""

import uuid
from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.context import Context
from nat.builder.function import Function
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME


class Workflow:
    """Runs the entry function between WORKFLOW_START and WORKFLOW_END, which stand outside of any function."""

    def __init__(self, function: Function) -> None:
        self.function = function

    async def ainvoke(self, value: Any, to_type: Any = None) -> Any:
        """The answer to one input, converted to `to_type` if that is given."""
        span, result = _begin(value), None
        try:
            result = await self.function.ainvoke(value, to_type=to_type)
        finally:
            _end(span, value, result)
        return result

    async def astream(self, value: Any) -> AsyncGenerator[Any, None]:
        """The answer to one input, piece by piece."""
        span, chunks = _begin(value), []
        try:
            async for chunk in self.function.astream(value):
                chunks.append(chunk)
                yield chunk
        finally:
            _end(span, value, chunks)


def _begin(value: Any) -> str:
    """Push WORKFLOW_START; gives the id of the span."""
    span = str(uuid.uuid4())
    _push(IntermediateStepType.WORKFLOW_START, span, StreamEventData(input=value))
    return span


def _end(span: str, value: Any, output: Any) -> None:
    _push(IntermediateStepType.WORKFLOW_END, span, StreamEventData(input=value, output=output))


def _push(event: IntermediateStepType, span: str, data: StreamEventData) -> None:
    payload = IntermediateStepPayload(event_type=event, data=data, UUID=span, name=WORKFLOW_COMPONENT_NAME)
    Context.get().intermediate_step_manager.push_intermediate_step(payload)
