import json

import openai
import pytest

from fakes.chat_chunks import chunks, completion, uncut
from fakes.dialect_server import DialectServer
from nat.gateway.dialects import DialectMemory, responses
from nat.gateway.dialects.answer_parts import chat_call

ASK = {"model": "gpt-x", "input": "hello"}
HI = {"role": "assistant", "content": "hi"}
PATCH = {"type": "custom", "name": "patch"}
SKY = {"type": "namespace", "name": "sky", "tools": [{"type": "function", "name": "look", "parameters": {}}]}


def answer(message, *, asked=ASK, **choice):
    return responses.from_chat(completion(message, **choice), asked, DialectMemory())


def test_a_response_repeats_the_requests_model_and_fields():
    """The answer has the API's shape; the official client finds its text and its counts."""
    client = DialectServer(responses, [completion(HI)]).openai()
    said = client.responses.create(**ASK, instructions="Be brief.", temperature=0.5)
    assert (said.id, said.model, said.status, said.output_text) == ("resp_chatcmpl-1", "gpt-x", "completed", "hi")
    assert (said.instructions, said.temperature, said.created_at) == ("Be brief.", 0.5, 1700000000)
    assert (said.usage.input_tokens, said.usage.output_tokens, said.usage.total_tokens) == (7, 5, 12)
    assert said.to_dict()["output"] == [
        {
            "type": "message",
            "id": "msg_chatcmpl-1_0",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
        }
    ]


@pytest.mark.parametrize(("reason", "told"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_truncated_answer_is_incomplete(reason, told):
    """The response gives the reason; only the last item is incomplete."""
    call = {"tool_calls": [chat_call("a", "look", '{"at')]}
    said = answer({**HI, **call}, reason=reason)
    assert (said["status"], said["incomplete_details"]) == ("incomplete", {"reason": told})
    assert [item["status"] for item in said["output"]] == ["completed", "incomplete"]


def test_thinking_is_encoded_for_agents_that_request_it():
    """`encrypted_content` returns the thinking to the field that it came from."""
    thinking = {**HI, "reasoning": "hm"}
    asked = {**ASK, "include": ["reasoning.encrypted_content"]}
    plain, sealed = answer(thinking)["output"][0], answer(thinking, asked=asked)["output"][0]
    assert plain["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert sealed == {**plain, "encrypted_content": '{"reasoning": "hm"}'}


@pytest.mark.parametrize(
    ("written", "shown"),
    [('{"input":"*** a"}', "*** a"), ("*** a", "*** a"), ('{"text": "*** a"}', '{"text": "*** a"}')],
)
def test_a_custom_tool_gets_its_text(written, shown):
    """The text is taken out of the JSON; if the model wrote other JSON, the whole text is taken."""
    asked, memory = {**ASK, "tools": [PATCH]}, DialectMemory()
    calling = {"role": "assistant", "content": None, "tool_calls": [chat_call("a", "patch", written)]}
    (item,) = responses.from_chat(completion(calling), asked, memory)["output"]
    assert (item["type"], item["id"][:4], item["name"], item["input"]) == ("custom_tool_call", "ctc_", "patch", shown)


def test_a_custom_call_keeps_the_sampled_text():
    """The JSON around the text is the model's own, white space included."""
    asked, memory = {**ASK, "tools": [PATCH]}, DialectMemory()
    calling = {"role": "assistant", "content": None, "tool_calls": [chat_call("a", "patch", '{ "input":"b" }')]}
    output = responses.from_chat(completion(calling), asked, memory)["output"]
    assert responses.to_chat({**asked, "input": output}, memory)["messages"] == [calling]


def test_a_call_into_a_namespace_names_it():
    """The agent gets name and namespace apart, as it gave them."""
    calling = {"role": "assistant", "content": None, "tool_calls": [chat_call("a", "sky__look", "{}")]}
    (item,) = answer(calling, asked={**ASK, "tools": [SKY]})["output"]
    assert (item["namespace"], item["name"]) == ("sky", "look")


def test_a_conversation_continues_from_a_response():
    """Earlier turns are sent again with the exact sampled answers, without their instructions."""
    first = {**HI, "reasoning": "hm", "tool_calls": [chat_call("a", "look", '{ "at":1 }')]}
    server = DialectServer(responses, [completion(first), completion(HI), completion(HI)])
    client = server.openai()
    one = client.responses.create(**ASK, instructions="Be brief.")
    result = {"type": "function_call_output", "call_id": "a", "output": "4"}
    two = client.responses.create(model="gpt-x", previous_response_id=one.id, input=[result])
    assert two.previous_response_id == one.id
    expected = [
        {"role": "user", "content": "hello"},
        first,
        {"role": "tool", "tool_call_id": "a", "content": "4"},
    ]
    assert server.chats[1]["messages"] == expected


def test_a_response_with_store_false_is_forgotten():
    """A response with `store: false` cannot be continued."""
    client = DialectServer(responses, [completion(HI)]).openai()
    one = client.responses.create(**ASK, store=False)
    with pytest.raises(openai.BadRequestError, match=f"'{one.id}' is not a stored response of this rollout"):
        client.responses.create(**ASK, previous_response_id=one.id)


def test_an_item_is_referred_to_by_its_id():
    """Some agents send back the ids of items instead of the items."""
    server = DialectServer(responses, [completion(HI), completion(HI)])
    client = server.openai()
    (item,) = client.responses.create(**ASK).output
    client.responses.create(model="x", input=[{"type": "item_reference", "id": item.id}])
    assert server.chats[1]["messages"] == [HI]


def test_the_events_of_a_stream_are_in_order():
    """Each item begins after the end of the one before it, and events are numbered without a gap."""
    call = chat_call("a", "patch", '{"input": "b"}')
    whole = completion({"role": "assistant", "content": "I", "reasoning": "hm", "tool_calls": [call]})
    server = DialectServer(responses, [whole], cut=uncut)
    events = list(server.openai().responses.create(**ASK, tools=[PATCH], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))

    def item(*inside):
        return ["output_item.added", *inside, "output_item.done"]

    def content(kind):
        return ["content_part.added", f"{kind}.delta", f"{kind}.done", "content_part.done"]

    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        *item(*content("reasoning_text")),
        *item(*content("output_text")),
        *item("custom_tool_call_input.delta", "custom_tool_call_input.done"),
        "completed",
    ]


def test_a_broken_stream_ends_with_an_error_event():
    """The last event is `response.failed` with the error."""
    stream = responses.stream({**ASK, "stream": True}, DialectMemory())
    stream.push(next(chunks(completion(HI))))
    name, data = stream.fail("the server hung up").decode().splitlines()[:2]
    assert name == "event: response.failed"
    said = json.loads(data.removeprefix("data: "))["response"]
    assert said["error"] == {"code": "server_error", "message": "the server hung up"}
    assert (said["id"], said["status"]) == ("resp_chatcmpl-1", "failed")
