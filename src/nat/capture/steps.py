"""A call as intermediate steps: a START and an END for each choice, or a span for a failed attempt.

Both steps are pushed at the end of the call: a failed attempt leaves no LLM step, and parallel calls do not interleave.
The timestamps are those of the call.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from nat.capture.response import Choice
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    StreamEventData,
    TokenUsageBaseModel,
    TraceMetadata,
    UsageInfo,
)
from nat.data_models.llm import LLMFrameworkEnum
from nat.data_models.llm_call import LLMCall

FAILED_CALL = "llm_call_failed"
"""Name of a failed attempt's span."""


class FailedCall(BaseModel):
    """One attempt without an answer; its retry, if there was one, is a separate call."""

    model: str
    llm_name: str | None = None
    status: int | None = None
    """The HTTP status; None if there was no response."""
    error: str
    """The message of the server or of the connection."""

    def __str__(self) -> str:
        return self.error if self.status is None else f"Error code: {self.status} - {self.error}"


@dataclass(frozen=True, slots=True)
class CallTimes:
    """When a call was sent and when its response was complete, in seconds since 1970."""

    started: float
    ended: float


def call_steps(
    call: LLMCall, choice: Choice, usage: dict[str, Any], times: CallTimes, framework: LLMFrameworkEnum | None
) -> tuple[IntermediateStepPayload, IntermediateStepPayload]:
    """LLM_START and LLM_END of one choice; `usage` has the server's token counts, which are of the whole request."""
    span = str(uuid.uuid4())
    tools = call.tools or []
    start = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_START,
        event_timestamp=times.started,
        framework=framework,
        name=call.model,
        data=StreamEventData(input=call.messages),
        metadata=TraceMetadata(chat_inputs=call.messages, tools_schema=tools),
        UUID=span,
    )
    end = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_END,
        event_timestamp=times.ended,
        span_event_timestamp=times.started,
        framework=framework,
        name=call.model,
        data=StreamEventData(
            input=call.messages[-1].get("content") if call.messages else None,
            output=call.message["content"] or "",
            payload=choice.raw,
        ),
        metadata=TraceMetadata(chat_inputs=call.messages, tools_schema=tools, llm_call=call),
        usage_info=_usage_info(usage),
        UUID=span,
    )
    return start, end


def failure_steps(
    failed: FailedCall, times: CallTimes, framework: LLMFrameworkEnum | None
) -> tuple[IntermediateStepPayload, IntermediateStepPayload]:
    """A span, so that the failure can be read and counted; it is not trained on."""
    span = str(uuid.uuid4())
    start = IntermediateStepPayload(
        event_type=IntermediateStepType.SPAN_START,
        event_timestamp=times.started,
        framework=framework,
        name=FAILED_CALL,
        UUID=span,
    )
    end = IntermediateStepPayload(
        event_type=IntermediateStepType.SPAN_END,
        event_timestamp=times.ended,
        span_event_timestamp=times.started,
        framework=framework,
        name=FAILED_CALL,
        data=StreamEventData(payload=failed.model_dump()),
        UUID=span,
    )
    return start, end


def failed_calls(steps: Iterable[IntermediateStep]) -> list[FailedCall]:
    """The failed attempts among the steps of a rollout, in the order in which they ended."""
    return [
        FailedCall.model_validate(step.data.payload)
        for step in steps
        if step.event_type is IntermediateStepType.SPAN_END and step.name == FAILED_CALL and step.data is not None
    ]


def _usage_info(usage: dict[str, Any]) -> UsageInfo:
    prompt_details = usage.get("prompt_tokens_details") or {}
    completion_details = usage.get("completion_tokens_details") or {}
    return UsageInfo(
        token_usage=TokenUsageBaseModel(
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
            cached_tokens=prompt_details.get("cached_tokens") or 0,
            reasoning_tokens=completion_details.get("reasoning_tokens") or 0,
            total_tokens=usage.get("total_tokens") or 0,
        ),
        num_llm_calls=1,
    )
