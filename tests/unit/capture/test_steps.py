"""Steps of a call, and failed attempts that are read back from them."""

import pytest

from nat.capture.request import read_request
from nat.capture.response import read_choices
from nat.capture.steps import (
    FAILED_CALL,
    FailedCall,
    call_steps,
    failed_calls,
    failure_steps,
)
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    TokenUsageBaseModel,
)
from nat.data_models.invocation_node import InvocationNode

USAGE = {
    "prompt_tokens": 2,
    "completion_tokens": 3,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
COUNTS = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5, "cached_tokens": 1, "reasoning_tokens": 4}


def test_failures_are_found_among_other_steps():
    """Failed attempts are found among other steps, even after JSON and back."""
    failed = FailedCall(model="m", llm_name="x", status=503, error="busy")
    other = IntermediateStepPayload(event_type=IntermediateStepType.SPAN_END, name="mine")
    payloads = [other, *failure_steps(failed, (1.0, 2.0), None)]
    node = InvocationNode(function_id="1", function_name="root")
    steps = [IntermediateStep(parent_id="root", function_ancestry=node, payload=payload) for payload in payloads]
    again = [IntermediateStep.model_validate_json(step.model_dump_json()) for step in steps]
    assert failed_calls(steps) == failed_calls(again) == [failed]
    assert {payload.name for payload in payloads[1:]} == {FAILED_CALL}


@pytest.mark.parametrize(("usage", "counts"), [(USAGE, COUNTS), ({}, {}), (dict.fromkeys(USAGE), {})])
def test_the_end_of_a_call_has_its_token_counts(usage, counts):
    """The server's counts are used, 0 where it sends none; the number of calls is 1."""
    asked = read_request("/v1/chat/completions", b'{"model":"m","messages":[]}')
    assert asked is not None
    [choice] = read_choices({"choices": [{"message": {"content": "a"}}]}, asked)
    _, end = call_steps(choice, usage, (1.0, 2.0), None)
    assert end.usage_info is not None
    assert end.usage_info.token_usage == TokenUsageBaseModel(**counts)
    assert end.usage_info.num_llm_calls == 1
