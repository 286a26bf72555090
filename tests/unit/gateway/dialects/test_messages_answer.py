import json

import pytest

from fakes.chat_chunks import completion, uncut
from fakes.dialect_server import DialectServer
from nat.gateway.dialects import DialectMemory, messages
from nat.gateway.dialects.answer_parts import chat_call
from nat.http.errors import ApiError

ASK = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
HI = {"role": "assistant", "content": "hi"}


def answer(message, *, asked=ASK, **choice):
    return messages.from_chat(completion(message, **choice), asked, DialectMemory())


def test_a_message_names_the_agents_model():
    """The answer has the API's shape and the model name of the request."""
    assert answer(HI) == {
        "id": "msg_chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "hi", "citations": None}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 5,
        },
    }


def test_cached_tokens_are_counted_apart():
    """All three counts of the prompt add up to its tokens."""
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    counted = answer(HI, usage=usage)["usage"]
    assert (counted["input_tokens"], counted["cache_read_input_tokens"]) == (2, 8)


@pytest.mark.parametrize(
    ("choice", "ending"),
    [
        ({}, ("end_turn", None)),
        ({"reason": "length"}, ("max_tokens", None)),
        ({"reason": "content_filter"}, ("refusal", None)),
        ({"stop_reason": "END"}, ("stop_sequence", "END")),
        ({"stop_reason": 151645}, ("end_turn", None)),
    ],
)
def test_stop_reasons(choice, ending):
    """A stop text is reported if the server names it; a token id is not a stop text."""
    said = answer(HI, asked={**ASK, "stop_sequences": ["END"]}, **choice)
    assert (said["stop_reason"], said["stop_sequence"]) == ending


def test_calls_end_an_answer_with_any_finish_reason():
    """Some servers report `stop` with tool calls; a truncated answer is still reported as truncated."""
    calling = {"role": "assistant", "content": None, "tool_calls": [chat_call("a", "look", "{}")]}
    assert answer(calling, reason="stop")["stop_reason"] == "tool_use"
    assert answer(calling, reason="length")["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("written", ["", "[1]", "no JSON"])
def test_arguments_that_are_no_object(written):
    """The agent gets an empty object; the model gets its own text back."""
    memory = DialectMemory()
    calling = {"role": "assistant", "content": "x", "tool_calls": [chat_call("a", "look", written)]}
    said = messages.from_chat(completion(calling), ASK, memory)
    assert said["content"][1]["input"] == {}
    history = [*ASK["messages"], {"role": "assistant", "content": said["content"]}, *ASK["messages"]]
    assert messages.to_chat({**ASK, "messages": history}, memory)["messages"][1] == calling


def test_arguments_that_the_agent_changed():
    """A call that the agent edited is serialised again instead of replaced by the sampled text."""
    memory = DialectMemory()
    calling = {"role": "assistant", "content": "x", "tool_calls": [chat_call("a", "look", '{"at":1}')]}
    said = messages.from_chat(completion(calling), ASK, memory)
    said["content"][1]["input"] = {"at": 2}
    history = [*ASK["messages"], {"role": "assistant", "content": said["content"]}, *ASK["messages"]]
    again = messages.to_chat({**ASK, "messages": history}, memory)["messages"][1]
    assert again["tool_calls"][0]["function"]["arguments"] == '{"at": 2}'


def test_calls_that_share_an_id_keep_their_texts():
    """Some servers count the ids of calls from 0 in every answer."""
    memory, history = DialectMemory(), list(ASK["messages"])
    for written in ('{"at":1}', '{ "at": 2}'):
        calling = {"role": "assistant", "content": "x", "tool_calls": [chat_call("call_0", "look", written)]}
        said = messages.from_chat(completion(calling), ASK, memory)
        history += [{"role": "assistant", "content": said["content"]}, *ASK["messages"]]
    asked = messages.to_chat({**ASK, "messages": history}, memory)["messages"]
    spelled = [message["tool_calls"][0]["function"]["arguments"] for message in asked if "tool_calls" in message]
    assert spelled == ['{"at":1}', '{ "at": 2}']


def test_answers_never_share_an_id():
    """Agents join answers that have the same id, and some servers send no ids."""
    memory = DialectMemory()
    first, second = (messages.from_chat(completion(HI), ASK, memory)["id"] for _ in range(2))
    assert (first, second) == ("msg_chatcmpl-1", "msg_chatcmpl-1-2")


def test_the_events_of_a_stream_are_in_order():
    """Each block begins after the end of the one before it."""
    calls = [chat_call("a", "look", '{"at": 1}'), chat_call("b", "look", "{}")]
    whole = completion({"role": "assistant", "content": "I look", "reasoning": "hm", "tool_calls": calls})
    server = DialectServer(messages, [whole], cut=uncut)
    list(server.anthropic().messages.create(**ASK, stream=True))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    thinking = [*block[:2], *block[1:]]
    assert server.events == ["message_start", *thinking, *block * 3, "message_delta", "message_stop"]


def test_a_stream_that_breaks_off_raises_in_the_client():
    """Anthropic's client raises the error that an event of this name carries."""
    stream = messages.stream({**ASK, "stream": True}, DialectMemory())
    name, data = stream.fail("the server hung up").decode().splitlines()[:2]
    assert name == "event: error"
    said = json.loads(data.removeprefix("data: "))
    assert said == {"type": "error", "error": {"type": "api_error", "message": "the server hung up"}}


@pytest.mark.parametrize(
    ("status", "seen", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 401, "authentication_error"),
        (404, 404, "not_found_error"),
        (413, 413, "request_too_large"),
        (422, 422, "invalid_request_error"),
        (500, 500, "api_error"),
        (502, 502, "api_error"),
        (503, 529, "overloaded_error"),
        (504, 504, "timeout_error"),
    ],
)
def test_errors_have_the_vendors_types(status, seen, kind):
    """Agents recognise errors by these types."""
    assert messages.error(ApiError("why", status=status)) == (
        seen,
        {"type": "error", "error": {"type": kind, "message": "why"}},
    )
