import pytest
from pydantic import ValidationError

from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepCategory,
    IntermediateStepPayload,
    IntermediateStepState,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
    TraceMetadata,
    TTCEventData,
)

NODE = InvocationNode(function_id="1", function_name="f")


@pytest.mark.parametrize("kind", list(IntermediateStepType))
def test_every_kind_has_category_and_state(kind):
    """Each event's name gives its category and its state."""
    assert kind.value.startswith(kind.category.value)
    assert kind.state in IntermediateStepState
    assert kind.value == kind.name


def test_a_new_token_is_a_chunk():
    """LLM_NEW_TOKEN is the only name without a state; it is a chunk."""
    assert IntermediateStepType.LLM_NEW_TOKEN.state is IntermediateStepState.CHUNK
    assert IntermediateStepType.LLM_NEW_TOKEN.category is IntermediateStepCategory.LLM


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


def test_fields_of_a_subclass_survive_a_dump():
    """The turn and score of a TTC event survive dump and load."""
    data = TTCEventData(turn_id="t", candidate_index=1, score=0.5, output="x")
    payload = IntermediateStepPayload(event_type="TTC_END", data=data)
    loaded = IntermediateStepPayload.model_validate(payload.model_dump())
    assert loaded.data.model_dump()["score"] == 0.5


def test_a_step_shows_its_payload():
    """The payload's fields can be read from the step itself."""
    payload = IntermediateStepPayload(event_type="CUSTOM_START", name="n", tags=["t"], metadata={"value": 3})
    step = IntermediateStep(parent_id="root", function_ancestry=NODE, payload=payload)
    assert (step.name, step.tags, step.metadata, step.UUID) == ("n", ["t"], {"value": 3}, payload.UUID)
    assert step.event_type is IntermediateStepType.CUSTOM_START
    assert step.event_timestamp == payload.event_timestamp


def test_a_candidates_prompt_is_copied():
    """A list that the agent goes on to append to does not change the step; other inputs are kept as they are."""
    messages = [{"role": "user", "content": "hello"}]
    data = TTCEventData(input=messages)
    messages.append({"role": "assistant", "content": "hi"})
    assert data.input == messages[:1]
    board = {"cells": []}
    assert TTCEventData(input=board).input is board


def test_a_turn_may_be_numbered():
    """A number as `turn_id` is read as text."""
    assert TTCEventData(turn_id=3).turn_id == "3"
