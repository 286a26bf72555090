"""LLM steps as the capture pushes them, made from a few arguments."""

from typing import Any
from uuid import uuid4

from nat.capture.steps import FailedCall, failure_steps
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
    TraceMetadata,
)
from nat.data_models.llm_call import LLMCall

Message = dict[str, Any]


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def call(messages: list[Message], answer: str | Message, **fields: Any) -> LLMCall:
    """One answered call; `ids=(prompt, sampled)` gives it exact tokens with log probabilities of -0.5."""
    prompt, sampled = fields.pop("ids", (None, None))
    logprobs = fields.pop("logprobs", [-0.5] * len(sampled or [0]))
    return LLMCall(
        llm_name=fields.pop("llm_name", "student"),
        model=fields.pop("model", "tiny"),
        messages=messages,
        message=assistant(answer) if isinstance(answer, str) else answer,
        finish_reason=fields.pop("finish_reason", "stop"),
        logprobs=logprobs,
        prompt_token_ids=prompt,
        token_ids=sampled,
        **fields,
    )


def steps(*calls: LLMCall, function: str = "<workflow>") -> list[IntermediateStep]:
    """LLM_START and LLM_END of each call of one function."""
    return [step for made in calls for step in _pair(made, function)]


def failed_steps(error: str, status: int | None = None) -> list[IntermediateStep]:
    """The span of a call of the workflow that got no answer."""
    failed = FailedCall(model="tiny", llm_name="student", status=status, error=error)
    node = InvocationNode(function_id="<workflow>", function_name="<workflow>")
    spans = failure_steps(failed, (1.0, 2.0), None)
    return [IntermediateStep(parent_id="root", function_ancestry=node, payload=span) for span in spans]


def _pair(made: LLMCall, function: str) -> list[IntermediateStep]:
    uuid = str(uuid4())
    node = InvocationNode(function_id=function, function_name=function)
    start = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_START,
        name=made.model,
        data=StreamEventData(input=made.messages),
        UUID=uuid,
    )
    end = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_END,
        name=made.model,
        data=StreamEventData(output=made.message.get("content"), payload={"message": made.message}),
        metadata=TraceMetadata(llm_call=made),
        UUID=uuid,
    )
    return [IntermediateStep(parent_id="root", function_ancestry=node, payload=p) for p in (start, end)]
