"""Encode steps as lines of a served workflow's answer, and decode them. Pure.

Requests with rollout options get whole steps: with the function, the span and, for an LLM call, the recorded request
and response. The two steps of a call repeat the conversation four times; it is sent once and restored on decoding.
"""

from typing import Any

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
from nat.data_models.llm_call import LLMCall
from nat.wire.rollout import STEP

_REMOTE = "remote"
"""Parent of steps from servers that do not send the real one."""


class StepEncoder:
    """Encodes whole steps; the START of a call is held back until its END, which follows at once."""

    def __init__(self) -> None:
        self._start: IntermediateStep | None = None

    def encode(self, step: IntermediateStep) -> bytes:
        """The lines that are complete now."""
        start, self._start = self._start, None
        if step.event_type is IntermediateStepType.LLM_START:
            self._start = step
            return b"" if start is None else _whole(start)
        if start is None:
            return _whole(step)
        if not _same_call(start, step):
            return _whole(start) + _whole(step)
        bare = start.payload.model_copy(update={"data": None, "metadata": None})
        metadata = step.payload.metadata
        assert isinstance(metadata, TraceMetadata), "the END of a recorded call has its record in the metadata"
        lighter = metadata.model_copy(update={"chat_inputs": None, "tools_schema": []})
        end = step.payload.model_copy(update={"metadata": lighter})
        return _line(start, bare, begins_call=True) + _line(step, end)

    def rest(self) -> bytes:
        """The lines that are held back when the rollout ends."""
        start, self._start = self._start, None
        return b"" if start is None else _whole(start)


def plain_line(step: IntermediateStep) -> bytes:
    """A step in the toolkit's format: the payload is JSON inside a string."""
    record = {
        "id": step.UUID,
        "type": step.event_type,
        "name": step.name or "",
        "parent_id": step.parent_id,
        "payload": _json(step.payload).decode(),
    }
    return STEP + to_json(record) + b"\n\n"


class StepDecoder:
    """Decodes the lines of one rollout; repeated messages are shared objects."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._starts: dict[str, IntermediateStepPayload] = {}

    def decode(self, content: bytes) -> IntermediateStep:
        """The step in a line, whose prefix is removed already; ValueError if it is invalid."""
        record = from_json(content)
        given = record["payload"]
        payload = self._payload(from_json(given) if isinstance(given, str) else given)
        if record.get("begins_call"):
            self._starts[payload.UUID] = payload
        ancestry = record.get("function_ancestry")
        if ancestry is None:
            name = payload.name or _REMOTE
            place = InvocationNode(function_id=payload.UUID, function_name=name, parent_id=_REMOTE, parent_name=_REMOTE)
            return IntermediateStep(parent_id=_REMOTE, function_ancestry=place, payload=payload)
        place = InvocationNode.model_validate(ancestry)
        return IntermediateStep(parent_id=record["parent_id"], function_ancestry=place, payload=payload)

    def _payload(self, fields: dict[str, Any]) -> IntermediateStepPayload:
        metadata = fields.get("metadata")
        if isinstance(metadata, dict) and metadata.keys() >= TraceMetadata.model_fields.keys():
            fields["metadata"] = TraceMetadata.model_validate(metadata)
        payload = IntermediateStepPayload.model_validate(fields)
        if payload.event_category is IntermediateStepCategory.TTC and payload.data is not None:
            payload.data = TTCEventData.model_validate(payload.data.model_dump())
        if isinstance(payload.metadata, TraceMetadata) and payload.metadata.llm_call is not None:
            self._restore(payload, payload.metadata, payload.metadata.llm_call)
        return payload

    def _restore(self, end: IntermediateStepPayload, metadata: TraceMetadata, call: LLMCall) -> None:
        """Restore the conversation in the two steps of a call from its record."""
        self._share(call)
        start = self._starts.pop(end.UUID, None)
        if start is None:
            return
        start.data = StreamEventData(input=call.messages)
        start.metadata = TraceMetadata(chat_inputs=call.messages, tools_schema=call.tools or [])
        metadata.chat_inputs, metadata.tools_schema = call.messages, call.tools or []

    def _share(self, call: LLMCall) -> None:
        """Replace messages that the rollout has seen before by the same objects."""
        interner = self._interner
        call.messages, call.tools = interner.messages(call.messages), interner.tools(call.tools)
        call.message = interner.message(call.message)
        if call.prompt_token_ids is not None:
            call.prompt_token_ids = interner.prompt_ids(call.prompt_token_ids)
            interner.sampled(call.prompt_token_ids, call.token_ids or [])


def _same_call(start: IntermediateStep, end: IntermediateStep) -> bool:
    """True if these are the two steps of one recorded call, with the same messages and tools."""
    first, last = start.metadata, end.metadata
    if start.UUID != end.UUID or not isinstance(first, TraceMetadata) or not isinstance(last, TraceMetadata):
        return False
    call, data = last.llm_call, start.data
    return (
        call is not None
        and data is not None
        and data == StreamEventData(input=data.input)
        and data.input is first.chat_inputs is last.chat_inputs is call.messages
        and first == TraceMetadata(chat_inputs=first.chat_inputs, tools_schema=call.tools or [])
        and last.tools_schema == (call.tools or [])
    )


def _whole(step: IntermediateStep) -> bytes:
    return _line(step, step.payload)


def _line(step: IntermediateStep, payload: IntermediateStepPayload, *, begins_call: bool = False) -> bytes:
    place = {
        "id": step.UUID,
        "type": step.event_type,
        "name": step.name or "",
        "parent_id": step.parent_id,
        "function_ancestry": step.function_ancestry,
        **({"begins_call": True} if begins_call else {}),
    }
    return STEP + to_json(place)[:-1] + b',"payload":' + _json(payload) + b"}\n\n"


def _json(payload: IntermediateStepPayload) -> bytes:
    """Values that JSON does not know become text; NaN and infinity stay numbers."""
    return to_json(payload, fallback=repr, inf_nan_mode="constants")
