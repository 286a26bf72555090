"""What a workflow did, step by step: the stream that trajectories are made from.

Steps are built thousands of times an epoch, so nothing here copies or dumps what it is given; a step shares
its messages with its neighbours and must not be changed after it was pushed.
"""

import time
import uuid
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator

from nat.data_models.framework import LLMFrameworkEnum
from nat.data_models.invocation_node import InvocationNode
from nat.data_models.llm_call import LLMCall
from nat.data_models.step_types import IntermediateStepCategory, IntermediateStepState, IntermediateStepType
from nat.data_models.token_usage import TokenUsageBaseModel, UsageInfo

__all__ = [
    "IntermediateStep",
    "IntermediateStepCategory",
    "IntermediateStepPayload",
    "IntermediateStepState",
    "IntermediateStepType",
    "InvocationNode",
    "LLMFrameworkEnum",
    "StreamEventData",
    "TTCEventData",
    "TokenUsageBaseModel",
    "TraceMetadata",
    "UsageInfo",
]


class StreamEventData(BaseModel):
    """What went into a step and what came out of it."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="constants")

    input: Any | None = None
    output: Any | None = None
    chunk: Any | None = None
    payload: Any | None = None


class TTCEventData(StreamEventData):
    """One candidate of a test-time-compute turn, with its score."""

    turn_id: str | None = None
    turn_index: int | None = None
    candidate_index: int | None = None
    score: float | None = None


class TraceMetadata(BaseModel):
    """What else is known of a step; extra keys are allowed."""

    model_config = ConfigDict(extra="allow", protected_namespaces=(), ser_json_inf_nan="constants")

    chat_responses: Any | None = None
    chat_inputs: Any | None = None
    tool_inputs: Any | None = None
    tool_outputs: Any | None = None
    tool_info: Any | None = None
    span_inputs: Any | None = None
    span_outputs: Any | None = None
    provided_metadata: Any | None = None
    tools_schema: list[Any] = []
    llm_call: LLMCall | None = None
    """The exact record of the call, on LLM_END steps that were captured at the wire."""


class IntermediateStepPayload(BaseModel):
    """One event, as whoever pushes it describes it."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="constants")

    event_type: IntermediateStepType
    event_timestamp: float = Field(default_factory=time.time)
    span_event_timestamp: float | None = None
    """When the span began; only an END step may carry it."""
    framework: LLMFrameworkEnum | None = None
    name: str | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | TraceMetadata | None = None
    data: SerializeAsAny[StreamEventData] | None = None
    usage_info: UsageInfo | None = None
    UUID: str = Field(default_factory=lambda: str(uuid.uuid4()))
    """Equal for the START, CHUNK and END of one span."""

    @property
    def event_category(self) -> IntermediateStepCategory:
        return self.event_type.category

    @property
    def event_state(self) -> IntermediateStepState:
        return self.event_type.state

    @model_validator(mode="after")
    def _only_an_end_knows_its_start(self) -> Self:
        if self.span_event_timestamp is not None and self.event_state is not IntermediateStepState.END:
            raise ValueError(f"span_event_timestamp is set on {self.event_type}, but only an END step has one")
        return self


class IntermediateStep(BaseModel):
    """A payload with its place: the span that it belongs to and the function that it happened in."""

    model_config = ConfigDict(extra="forbid")

    parent_id: str
    function_ancestry: InvocationNode
    payload: IntermediateStepPayload

    @property
    def event_type(self) -> IntermediateStepType:
        return self.payload.event_type

    @property
    def event_timestamp(self) -> float:
        return self.payload.event_timestamp

    @property
    def span_event_timestamp(self) -> float | None:
        return self.payload.span_event_timestamp

    @property
    def framework(self) -> LLMFrameworkEnum | None:
        return self.payload.framework

    @property
    def name(self) -> str | None:
        return self.payload.name

    @property
    def tags(self) -> list[str] | None:
        return self.payload.tags

    @property
    def metadata(self) -> dict[str, Any] | TraceMetadata | None:
        return self.payload.metadata

    @property
    def data(self) -> StreamEventData | None:
        return self.payload.data

    @property
    def usage_info(self) -> UsageInfo | None:
        return self.payload.usage_info

    @property
    def UUID(self) -> str:  # noqa: N802 - the public name
        return self.payload.UUID

    @property
    def event_category(self) -> IntermediateStepCategory:
        return self.payload.event_category

    @property
    def event_state(self) -> IntermediateStepState:
        return self.payload.event_state
