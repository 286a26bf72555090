"""Both dialects against random conversations, read by the official clients."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.chat_chunks import completion, uncut
from fakes.conversations import answers, conversations, cuts
from fakes.dialect_server import DialectServer
from nat.gateway.dialects import messages, responses

LENIENT = settings(deadline=None, max_examples=40)


def play_with_anthropic(chat, client):
    """Run a conversation with the Messages client against scripted answers."""
    history, pending = [], []
    for message in chat:
        match message["role"]:
            case "assistant":
                answer = client.messages.create(model="m", max_tokens=9, messages=[*history, *pending])
                history += [*pending, {"role": "assistant", "content": [b.to_dict() for b in answer.content]}]
                pending = []
            case "user":
                pending.append({"role": "user", "content": message["content"]})
            case "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
                pending.append({"role": "user", "content": [result]})


def play_with_openai(chat, client, *, by_id):
    """Run it with the Responses client, which sends the whole history or continues a response by its id."""
    history, pending, previous = [], [], None
    for message in chat:
        match message["role"]:
            case "assistant":
                go_on = {"previous_response_id": previous} if by_id and previous else {}
                answer = client.responses.create(model="m", input=pending if by_id else [*history, *pending], **go_on)
                history += [*pending, *(item.to_dict() for item in answer.output)]
                pending, previous = [], answer.id
            case "user":
                pending.append({"role": "user", "content": message["content"]})
            case "tool":
                output = {"call_id": message["tool_call_id"], "output": message["content"]}
                pending.append({"type": "function_call_output", **output})


def answered(chat):
    """The scripted answers, all with one id, as from a server that gives none of its own."""
    return [completion(message) for message in chat if message["role"] == "assistant"]


@LENIENT
@given(chat=conversations())
def test_a_conversation_over_messages_is_the_chat_that_was_sampled(chat):
    """The last request has the exact texts, thinking and calls, with their ids and order."""
    server = DialectServer(messages, answered(chat))
    play_with_anthropic(chat, server.anthropic())
    assert server.chats[-1]["messages"] == chat[:-1]


@LENIENT
@given(chat=conversations(), by_id=st.booleans())
def test_a_conversation_over_responses_is_the_chat_that_was_sampled(chat, by_id):
    """The last request is exact, whether the agent sends its history or continues a response by id."""
    server = DialectServer(responses, answered(chat))
    play_with_openai(chat, server.openai(), by_id=by_id)
    if not by_id:  # in a plain history the newer field of thinking cannot be pending from the older
        chat = [{("reasoning_content" if key == "reasoning" else key): m[key] for key in m} for m in chat]
    assert server.chats[-1]["messages"] == chat[:-1]


@LENIENT
@given(message=answers(), cut=cuts(), reason=st.sampled_from([None, "length"]))
def test_the_events_of_messages_are_the_whole_answer(message, cut, reason):
    """For any split into chunks, the official client joins the events to the unstreamed answer."""
    whole = completion(message, reason=reason)
    ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with DialectServer(messages, [whole], cut=cut).anthropic().messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    expected = DialectServer(messages, [whole]).anthropic().messages.create(**ask)
    assert streamed.to_dict() == expected.to_dict() | {"stop_details": None}


@LENIENT
@given(message=answers(), cut=cuts(), reason=st.sampled_from([None, "length"]), seal=st.booleans())
def test_the_events_of_responses_are_the_whole_answer(message, cut, reason, seal):
    """For any split, the events and each finished item equal the unstreamed response."""
    whole = completion(message, reason=reason)
    ask = {"model": "m", "input": "hi", "include": ["reasoning.encrypted_content"] if seal else []}
    events = list(DialectServer(responses, [whole], cut=cut).openai().responses.create(**ask, stream=True))
    items = [event.item for event in events if event.type == "response.output_item.done"]
    expected = DialectServer(responses, [whole]).openai().responses.create(**ask)
    assert events[-1].response.to_dict() == expected.to_dict()
    assert items == expected.output


@pytest.mark.parametrize("dialect", [messages, responses])
def test_an_answer_without_a_word_ends_too(dialect):
    """If the model samples no text, the client still gets a complete answer."""
    server = DialectServer(dialect, [completion({"role": "assistant", "content": ""})], cut=uncut)
    if dialect is messages:
        ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        with server.anthropic().messages.stream(**ask) as stream:
            assert stream.get_final_message().content == []
    else:
        with server.openai().responses.stream(model="m", input="hi") as stream:
            assert stream.get_final_response().output == []
