"""The steps of a workflow: the stream that trajectories are made from.

Thousands of steps are created per epoch, so nothing here copies or dumps its input. A step shares its messages with
other steps and must not be changed after it was pushed.
"""

import time
import uuid
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from nat.data_models.invocation_node import InvocationNode as InvocationNode
from nat.data_models.llm import LLMFrameworkEnum as LLMFrameworkEnum
from nat.data_models.llm_call import LLMCall


class IntermediateStepCategory(StrEnum):
    """The kind of operation that a step belongs to."""

    LLM = "LLM"
    TOOL = "TOOL"
    WORKFLOW = "WORKFLOW"
    TASK = "TASK"
    FUNCTION = "FUNCTION"
    CUSTOM = "CUSTOM"
    SPAN = "SPAN"
    TTC = "TTC"


class IntermediateStepState(StrEnum):
    """Whether a step begins, continues or ends its span."""

    START = "START"
    CHUNK = "CHUNK"
    END = "END"


class IntermediateStepType(StrEnum):
    """What a step is a part of, and whether it begins, continues or ends it."""

    LLM_START = "LLM_START"
    LLM_END = "LLM_END"
    LLM_NEW_TOKEN = "LLM_NEW_TOKEN"
    TOOL_START = "TOOL_START"
    TOOL_END = "TOOL_END"
    WORKFLOW_START = "WORKFLOW_START"
    WORKFLOW_END = "WORKFLOW_END"
    TASK_START = "TASK_START"
    TASK_END = "TASK_END"
    TTC_START = "TTC_START"
    TTC_END = "TTC_END"
    FUNCTION_START = "FUNCTION_START"
    FUNCTION_END = "FUNCTION_END"
    CUSTOM_START = "CUSTOM_START"
    CUSTOM_END = "CUSTOM_END"
    SPAN_START = "SPAN_START"
    SPAN_CHUNK = "SPAN_CHUNK"
    SPAN_END = "SPAN_END"


TokenCount = Annotated[int, AfterValidator(lambda tokens: tokens if 0 <= tokens <= 2**40 else 0)]
"""0 in place of a number that no call can have used, such as -1, since servers report what they like."""


class TokenUsageBaseModel(BaseModel):
    """Token counts as the server reported them; 0 if it reported none."""

    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0
    cached_tokens: TokenCount = 0
    reasoning_tokens: TokenCount = 0
    total_tokens: TokenCount = 0


class UsageInfo(BaseModel):
    """Token counts of a step, and the number of LLM calls that they cover."""

    token_usage: TokenUsageBaseModel = TokenUsageBaseModel()
    num_llm_calls: int = 0
    seconds_between_calls: int = 0


REWARD = "reward"
"""Metadata key of an END step: the reward, a number."""
REWARDED_STEP = "reward_step"
"""Metadata key beside it: the UUID of the rewarded step, if it is another one."""


class StreamEventData(BaseModel):
    """Input and output of a step."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="constants")

    input: Any | None = None
    output: Any | None = None
    chunk: Any | None = None
    payload: Any | None = None


class TTCEventData(StreamEventData):
    """One candidate of a test-time-compute turn, with its score.

    A list of messages as `input` is copied, because agents go on to append the answer to it.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    turn_id: str | None = None
    turn_index: int | None = None
    candidate_index: int | None = None
    score: float | None = None

    @field_validator("input")
    @classmethod
    def _copied(cls, value: Any) -> Any:
        return list(value) if isinstance(value, list) else value


class TraceMetadata(BaseModel):
    """Further details of a step; extra keys are allowed."""

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
    """The exact record of the call, on LLM_END steps that were captured from HTTP."""


class IntermediateStepPayload(BaseModel):
    """One event, as its sender describes it."""

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
        return IntermediateStepCategory(self.event_type.partition("_")[0])

    @property
    def event_state(self) -> IntermediateStepState:
        if self.event_type is IntermediateStepType.LLM_NEW_TOKEN:
            return IntermediateStepState.CHUNK
        return IntermediateStepState(self.event_type.rpartition("_")[2])

    @model_validator(mode="after")
    def _only_an_end_knows_its_start(self) -> Self:
        if self.span_event_timestamp is not None and self.event_state is not IntermediateStepState.END:
            raise ValueError(f"span_event_timestamp is set on {self.event_type}, but only an END step has one")
        return self


class IntermediateStep(BaseModel):
    """A payload with its parent span and the function that was running."""

    model_config = ConfigDict(extra="forbid")

    parent_id: str
    function_ancestry: InvocationNode
    payload: IntermediateStepPayload

    event_type: ClassVar[Any] = property(attrgetter("payload.event_type"))
    event_category: ClassVar[Any] = property(attrgetter("payload.event_category"))
    event_state: ClassVar[Any] = property(attrgetter("payload.event_state"))
    event_timestamp: ClassVar[Any] = property(attrgetter("payload.event_timestamp"))
    span_event_timestamp: ClassVar[Any] = property(attrgetter("payload.span_event_timestamp"))
    framework: ClassVar[Any] = property(attrgetter("payload.framework"))
    name: ClassVar[Any] = property(attrgetter("payload.name"))
    tags: ClassVar[Any] = property(attrgetter("payload.tags"))
    metadata: ClassVar[Any] = property(attrgetter("payload.metadata"))
    data: ClassVar[Any] = property(attrgetter("payload.data"))
    usage_info: ClassVar[Any] = property(attrgetter("payload.usage_info"))
    UUID: ClassVar[Any] = property(attrgetter("payload.UUID"))

    @property
    def llm_call(self) -> LLMCall | None:
        """The call as it was recorded at the wire; None for other steps, and if the workflow pushed the step."""
        metadata = self.payload.metadata
        if isinstance(metadata, dict):
            raw = metadata.get("llm_call")
            return None if raw is None else LLMCall.model_validate(raw)
        return None if metadata is None else metadata.llm_call
