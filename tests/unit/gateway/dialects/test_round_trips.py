"""Both dialects against random conversations, read by the official clients."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.chat_chunks import completion, uncut
from fakes.conversations import answers, conversations, cuts
from fakes.dialect_server import DialectServer
from nat.gateway.dialects import messages, responses

LENIENT = settings(deadline=None, max_examples=40)


def told_to_anthropic(chat, client):
    """Play a conversation with the Messages client: its questions and results are sent, its answers scripted."""
    history, told = [], []
    for message in chat:
        match message["role"]:
            case "assistant":
                answer = client.messages.create(model="m", max_tokens=9, messages=[*history, *told])
                history += [*told, {"role": "assistant", "content": [b.to_dict() for b in answer.content]}]
                told = []
            case "user":
                told.append({"role": "user", "content": message["content"]})
            case "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
                told.append({"role": "user", "content": [result]})


def told_to_openai(chat, client, *, by_id):
    """The same with the Responses client, sending the whole history or naming the response to go on from."""
    history, told, previous = [], [], None
    for message in chat:
        match message["role"]:
            case "assistant":
                go_on = {"previous_response_id": previous} if by_id and previous else {}
                answer = client.responses.create(model="m", input=told if by_id else [*history, *told], **go_on)
                history += [*told, *(item.to_dict() for item in answer.output)]
                told, previous = [], answer.id
            case "user":
                told.append({"role": "user", "content": message["content"]})
            case "tool":
                output = {"call_id": message["tool_call_id"], "output": message["content"]}
                told.append({"type": "function_call_output", **output})


def answered(chat):
    """The scripted answers, all with one id, as from a server that gives none of its own."""
    return [completion(message) for message in chat if message["role"] == "assistant"]


@LENIENT
@given(chat=conversations())
def test_a_conversation_over_messages_is_the_chat_that_was_sampled(chat):
    """Texts, thinking, calls with their ids, order and spelling: the last request holds them letter by letter."""
    server = DialectServer(messages, answered(chat))
    told_to_anthropic(chat, server.anthropic())
    assert server.chats[-1]["messages"] == chat[:-1]


@LENIENT
@given(chat=conversations(), by_id=st.booleans())
def test_a_conversation_over_responses_is_the_chat_that_was_sampled(chat, by_id):
    """The same, whether the agent sends its history or names the response to go on from."""
    server = DialectServer(responses, answered(chat))
    told_to_openai(chat, server.openai(), by_id=by_id)
    if not by_id:  # in a plain history the newer field of thinking cannot be told from the older
        chat = [{("reasoning_content" if key == "reasoning" else key): m[key] for key in m} for m in chat]
    assert server.chats[-1]["messages"] == chat[:-1]


@LENIENT
@given(message=answers(), cut=cuts(), reason=st.sampled_from([None, "length"]))
def test_the_events_of_messages_are_the_whole_answer(message, cut, reason):
    """However the server cuts its chunks: joined by the official client, they are the answer unstreamed."""
    whole = completion(message, reason=reason)
    ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with DialectServer(messages, [whole], cut=cut).anthropic().messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    expected = DialectServer(messages, [whole]).anthropic().messages.create(**ask)
    assert streamed.to_dict() == expected.to_dict() | {"stop_details": None}


@LENIENT
@given(message=answers(), cut=cuts(), reason=st.sampled_from([None, "length"]), seal=st.booleans())
def test_the_events_of_responses_are_the_whole_answer(message, cut, reason, seal):
    """Likewise, each item as it was when it was done included."""
    whole = completion(message, reason=reason)
    ask = {"model": "m", "input": "hi", "include": ["reasoning.encrypted_content"] if seal else []}
    events = list(DialectServer(responses, [whole], cut=cut).openai().responses.create(**ask, stream=True))
    items = [event.item for event in events if event.type == "response.output_item.done"]
    expected = DialectServer(responses, [whole]).openai().responses.create(**ask)
    assert events[-1].response.to_dict() == expected.to_dict()
    assert items == expected.output


@LENIENT
@given(message=answers(), cut=cuts())
def test_the_official_accumulator_agrees(message, cut):
    """The texts and arguments that the client adds up from deltas are those of the whole response."""
    client = DialectServer(responses, [completion(message)], cut=cut).openai()
    grown = {}
    with client.responses.stream(model="m", input="hi") as stream:
        for event in stream:
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                grown[event.output_index] = event.snapshot
    wanted = [message["content"]] if message["content"] else []
    wanted += [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    assert list(grown.values()) == wanted


@pytest.mark.parametrize("dialect", [messages, responses])
def test_an_answer_without_a_word_ends_too(dialect):
    """The model may sample no text; the client still gets a whole answer."""
    server = DialectServer(dialect, [completion({"role": "assistant", "content": ""})], cut=uncut)
    if dialect is messages:
        ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        with server.anthropic().messages.stream(**ask) as stream:
            assert stream.get_final_message().content == []
    else:
        with server.openai().responses.stream(model="m", input="hi") as stream:
            assert stream.get_final_response().output == []
