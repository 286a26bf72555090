"""Encode the steps of a rollout as lines of JSON, and decode them. Pure.

One codec for the answers of a served workflow, the gateway's rollouts and what a run keeps until an epoch ends. The two
steps of a call repeat the conversation four times; it is written once and restored on decoding.
"""

from collections.abc import Iterable, Sequence

from pydantic_core import from_json, to_json

from nat.capture.interning import Interner
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepCategory,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
    TraceMetadata,
    TTCEventData,
)
from nat.wire.rollout import STEP

_REMOTE = "remote"
"""Parent of steps from servers that do not send the real one."""


def encoded(steps: Sequence[IntermediateStep]) -> list[bytes]:
    """A line for each step, with its function and span and, for an LLM call, the recorded request and response."""
    lines = []
    for before, step, after in zip([None, *steps], steps, [*steps[1:], None], strict=False):
        payload = step.payload
        begins_call = after is not None and _is_call(step, after)
        if begins_call:
            payload = payload.model_copy(update={"data": None, "metadata": None})
        elif before is not None and _is_call(before, step):
            assert isinstance(step.metadata, TraceMetadata), "the END of a recorded call has its record in the metadata"
            metadata = step.metadata.model_copy(update={"chat_inputs": None, "tools_schema": []})
            payload = payload.model_copy(update={"metadata": metadata})
        place = {
            "id": step.UUID,
            "type": step.event_type,
            "name": step.name or "",
            "parent_id": step.parent_id,
            "function_ancestry": step.function_ancestry,
            **({"begins_call": True} if begins_call else {}),
        }
        lines.append(to_json(place)[:-1] + b',"payload":' + _json(payload) + b"}")
    return lines


def step_events(steps: Sequence[IntermediateStep]) -> bytes:
    """The steps as the events of an answer."""
    return b"".join(STEP + line + b"\n\n" for line in encoded(steps))


def plain_event(step: IntermediateStep) -> bytes:
    """A step in the toolkit's format: the payload is JSON inside a string."""
    record = {
        "id": step.UUID,
        "type": step.event_type,
        "name": step.name or "",
        "parent_id": step.parent_id,
        "payload": _json(step.payload).decode(),
    }
    return STEP + to_json(record) + b"\n\n"


def decoded(lines: Iterable[bytes], interner: Interner) -> list[IntermediateStep]:
    """The steps of one rollout in either format; repeated messages are shared objects. ValueError if one is invalid."""
    steps: list[IntermediateStep] = []
    starts: dict[str, IntermediateStepPayload] = {}
    for line in lines:
        record = from_json(line)
        fields = from_json(record["payload"]) if isinstance(record["payload"], str) else record["payload"]
        metadata = fields.get("metadata")
        if isinstance(metadata, dict) and metadata.keys() >= TraceMetadata.model_fields.keys():
            fields["metadata"] = TraceMetadata.model_validate(metadata)
        payload = IntermediateStepPayload.model_validate(fields)
        if payload.event_category is IntermediateStepCategory.TTC and payload.data is not None:
            payload.data = TTCEventData.model_validate(payload.data.model_dump())
        if isinstance(payload.metadata, TraceMetadata) and payload.metadata.llm_call is not None:
            _restore(payload.metadata, starts.pop(payload.UUID, None), interner)
        if record.get("begins_call"):
            starts[payload.UUID] = payload
        parent, ancestry = record.get("parent_id"), record.get("function_ancestry")
        if ancestry is None:
            own = {"function_id": payload.UUID, "function_name": payload.name or _REMOTE}
            parent, ancestry = _REMOTE, own | {"parent_id": _REMOTE, "parent_name": _REMOTE}
        place = InvocationNode.model_validate(ancestry)
        steps.append(IntermediateStep(parent_id=parent, function_ancestry=place, payload=payload))
    return steps


def _restore(metadata: TraceMetadata, start: IntermediateStepPayload | None, interner: Interner) -> None:
    """Share the messages of a call with those before it, and restore them in its two steps."""
    call = metadata.llm_call
    assert call is not None
    call.messages, call.tools = interner.messages(call.messages), interner.tools(call.tools)
    call.message = interner.message(call.message)
    if call.prompt_token_ids is not None:
        call.prompt_token_ids = interner.prompt_ids(call.prompt_token_ids)
        interner.sampled(call.prompt_token_ids, call.token_ids or [])
    if start is not None:
        start.data = StreamEventData(input=call.messages)
        start.metadata = TraceMetadata(chat_inputs=call.messages, tools_schema=call.tools or [])
        metadata.chat_inputs, metadata.tools_schema = call.messages, call.tools or []


def _is_call(start: IntermediateStep, end: IntermediateStep) -> bool:
    """True if these are the steps of one recorded call, and the first has nothing but its messages and tools."""
    first, last, data = start.metadata, end.metadata, start.data
    if start.event_type is not IntermediateStepType.LLM_START or start.UUID != end.UUID or data is None:
        return False
    if not isinstance(first, TraceMetadata) or not isinstance(last, TraceMetadata) or (call := last.llm_call) is None:
        return False
    return (
        data.model_fields_set == {"input"}
        and first.model_fields_set == {"chat_inputs", "tools_schema"}
        and data.input is first.chat_inputs is last.chat_inputs is call.messages
        and first.tools_schema == last.tools_schema == (call.tools or [])
    )


def _json(payload: IntermediateStepPayload) -> bytes:
    """Values that JSON does not know become text; NaN and infinity stay numbers."""
    return to_json(payload, fallback=repr, inf_nan_mode="constants")
