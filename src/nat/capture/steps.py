"""A call as intermediate steps: a START and an END for each choice, or a span for a failed attempt.

Both steps are pushed at the end of the call: a failed attempt leaves no LLM step, and parallel calls do not interleave.
`times` are when the call was sent and when its response was complete, in seconds since 1970.
"""

import uuid
from collections.abc import Iterable
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


def call_steps(
    choice: Choice, usage: dict[str, Any], times: tuple[float, float], framework: LLMFrameworkEnum | None
) -> list[IntermediateStepPayload]:
    """LLM_START and LLM_END of one choice; `usage` has the server's token counts, which are of the whole request."""
    call = choice.call
    asked = {"chat_inputs": call.messages, "tools_schema": call.tools or []}
    given = call.messages[-1].get("content") if call.messages else None
    prompt, completion = (usage.get(f"{side}_tokens_details") or {} for side in ("prompt", "completion"))
    counts = TokenUsageBaseModel(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=prompt.get("cached_tokens") or 0,
        reasoning_tokens=completion.get("reasoning_tokens") or 0,
        total_tokens=usage.get("total_tokens") or 0,
    )
    start = {"data": StreamEventData(input=call.messages), "metadata": TraceMetadata(**asked)}
    end = {
        "data": StreamEventData(input=given, output=call.message["content"] or "", payload=choice.raw),
        "metadata": TraceMetadata(**asked, llm_call=call),
        "usage_info": UsageInfo(token_usage=counts, num_llm_calls=1),
    }
    return _steps("LLM", times, start, end, framework=framework, name=call.model)


def failure_steps(
    failed: FailedCall, times: tuple[float, float], framework: LLMFrameworkEnum | None
) -> list[IntermediateStepPayload]:
    """A span, so that the failure can be read and counted; it is not trained on."""
    end = {"data": StreamEventData(payload=failed.model_dump())}
    return _steps("SPAN", times, {}, end, framework=framework, name=FAILED_CALL)


def _steps(
    kind: str, times: tuple[float, float], start: dict[str, Any], end: dict[str, Any], **both: Any
) -> list[IntermediateStepPayload]:
    both["UUID"] = str(uuid.uuid4())
    sent, answered = times
    began, ended = IntermediateStepType(f"{kind}_START"), IntermediateStepType(f"{kind}_END")
    end |= {"event_timestamp": answered, "span_event_timestamp": sent}
    return [
        IntermediateStepPayload(event_type=began, event_timestamp=sent, **start, **both),
        IntermediateStepPayload(event_type=ended, **end, **both),
    ]


def failed_calls(steps: Iterable[IntermediateStep]) -> list[FailedCall]:
    """The failed attempts among the steps of a rollout, in the order in which they ended."""
    return [
        FailedCall.model_validate(step.data.payload)
        for step in steps
        if step.event_type is IntermediateStepType.SPAN_END and step.name == FAILED_CALL and step.data is not None
    ]
