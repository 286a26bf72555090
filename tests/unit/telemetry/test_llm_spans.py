import json

from fakes.llm_steps import assistant, call, steps, system, user
from fakes.openai_replies import tool_call
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
    TokenUsageBaseModel,
    UsageInfo,
)
from nat.telemetry.llm_spans import Messages, call_attributes


def attributes(made):
    return call_attributes(steps(made)[1], Messages())


def test_a_call_has_both_vocabularies():
    """Model, temperature, end and messages stand under OpenTelemetry's names and under OpenInference's."""
    found = attributes(call([system("be brief"), user("hi")], "hello", temperature=0.5, policy_version="v3"))
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == found["llm.model_name"] == "tiny"
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert found["openinference.span.kind"] == "LLM"
    assert found["nat.finetune.weight_version"] == "v3"
    assert json.loads(found["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
    ]
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "hello"}], "finish_reason": "stop"}
    assert json.loads(found["gen_ai.output.messages"]) == [answer]
    assert found["llm.input_messages.1.message.content"] == found["input.value"] == "hi"
    assert found["llm.output_messages.0.message.content"] == found["output.value"] == "hello"


def test_tool_calls_thoughts_and_results_are_parts():
    """A call of a tool, its result and a model's thoughts keep their ids, names and texts."""
    asked = assistant("", tool_calls=[tool_call("add", {"a": 1})], reasoning_content="hm")
    result = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
    offered = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    found = attributes(call([user("1+1"), asked, result], asked, tools=offered))
    _, said, told = json.loads(found["gen_ai.input.messages"])
    thought = {"type": "reasoning", "content": "hm"}
    assert said["parts"] == [thought, {"type": "tool_call", "id": "call_1", "name": "add", "arguments": '{"a": 1}'}]
    assert told["parts"] == [{"type": "tool_call_response", "id": "call_1", "response": "2"}]
    assert found["llm.input_messages.1.message.tool_calls.0.tool_call.function.name"] == "add"
    assert found["llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments"] == '{"a": 1}'
    assert found["llm.input_messages.2.message.tool_call_id"] == "call_1"
    assert json.loads(found["gen_ai.tool.definitions"]) == [{"name": "add", "parameters": {}}]
    assert json.loads(found["llm.tools.0.tool.json_schema"]) == offered[0]


def test_a_long_history_is_repeated_whole_only_once():
    """OpenInference's names, two for each message, have the last 16; `gen_ai.input.messages` has all."""
    found = attributes(call([user(f"number {n}") for n in range(40)], "ok"))
    assert len(json.loads(found["gen_ai.input.messages"])) == 40
    flat = [name for name in found if name.startswith("llm.input_messages.") and name.endswith(".content")]
    assert len(flat) == 16
    assert found["llm.input_messages.39.message.content"] == "number 39"


def test_a_call_that_a_framework_reported_has_what_is_known():
    """Without a captured call there are the model, the tokens, the last input and the output."""
    payload = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_END,
        name="theirs",
        data=StreamEventData(input="q", output={"text": "a"}),
        usage_info=UsageInfo(token_usage=TokenUsageBaseModel(prompt_tokens=3, completion_tokens=4, total_tokens=7)),
    )
    node = InvocationNode(function_id="f", function_name="f")
    found = call_attributes(IntermediateStep(parent_id="root", function_ancestry=node, payload=payload), Messages())
    assert found["gen_ai.request.model"] == "theirs"
    assert (found["gen_ai.usage.input_tokens"], found["llm.token_count.total"]) == (3, 7)
    assert (found["input.value"], found["output.value"]) == ("q", '{"text":"a"}')
    assert found["output.mime_type"] == "application/json"


def test_parts_of_other_kinds_stay_as_they_are():
    """An image is passed on, beside the text of the same message."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    found = attributes(call([user([{"type": "text", "text": "look"}, image])], "ok"))
    assert json.loads(found["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "look"}, image]
