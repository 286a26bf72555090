import pytest
from pydantic import ValidationError

from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    InvocationNode,
    StreamEventData,
    TraceMetadata,
    TTCEventData,
)

NODE = InvocationNode(function_id="1", function_name="f")


def test_nothing_is_copied():
    """A step keeps the given objects, so messages of thousands of steps share memory."""
    messages = [{"role": "user", "content": "hi"}]
    metadata = TraceMetadata(chat_inputs=messages)
    data = StreamEventData(input=messages)
    payload = IntermediateStepPayload(event_type="LLM_START", data=data, metadata=metadata)
    step = IntermediateStep(parent_id="root", function_ancestry=NODE, payload=payload)
    assert step.payload is payload
    assert step.data is data
    assert step.metadata is metadata
    assert step.data.input is messages


def test_only_an_end_has_a_span_timestamp():
    """A START with a span timestamp is an error."""
    with pytest.raises(ValidationError, match="only an END"):
        IntermediateStepPayload(event_type="LLM_START", span_event_timestamp=1.0)
    assert IntermediateStepPayload(event_type="LLM_END", span_event_timestamp=1.0).span_event_timestamp == 1.0


def test_a_candidates_prompt_is_copied():
    """A list that the agent goes on to append to does not change the step; other inputs are kept as they are."""
    messages = [{"role": "user", "content": "hello"}]
    data = TTCEventData(input=messages)
    messages.append({"role": "assistant", "content": "hi"})
    assert data.input == messages[:1]
    board = {"cells": []}
    assert TTCEventData(input=board).input is board
