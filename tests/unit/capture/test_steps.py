"""Reading failed attempts back from the steps of a rollout."""

from nat.capture.steps import FAILED_CALL, CallTimes, FailedCall, failed_calls, failure_steps
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepPayload, IntermediateStepType
from nat.data_models.invocation_node import InvocationNode


def test_failures_are_found_among_other_steps():
    """Also after the steps were written to disk and read again."""
    failed = FailedCall(model="m", llm_name="x", status=503, error="busy")
    other = IntermediateStepPayload(event_type=IntermediateStepType.SPAN_END, name="mine")
    payloads = [other, *failure_steps(failed, CallTimes(1.0, 2.0), None)]
    node = InvocationNode(function_id="1", function_name="root")
    steps = [IntermediateStep(parent_id="root", function_ancestry=node, payload=payload) for payload in payloads]
    again = [IntermediateStep.model_validate_json(step.model_dump_json()) for step in steps]
    assert failed_calls(steps) == failed_calls(again) == [failed]
    assert {payload.name for payload in payloads[1:]} == {FAILED_CALL}
