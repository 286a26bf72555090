"""Streamed answers are joined."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.openai_replies import Say, completion, events, tool_call
from nat.capture.request import CallRequest, read_request
from nat.capture.response import HiddenFields, ResponseReader, UnreadableAnswer, read_choices

arguments = st.dictionaries(st.text(max_size=4), st.text(max_size=9) | st.integers(), max_size=3)
calls = st.lists(
    st.builds(tool_call, st.sampled_from(["look", "go"]), arguments, st.sampled_from(["a", "b"])), max_size=3
)
says = st.builds(
    lambda content, calls: Say(content or (None if calls else ""), tuple(calls)), st.text(max_size=20), calls
)


def as_stream(pieces: list[dict[str, Any]], end: str = "data: [DONE]\n\n", newline: str = "\n") -> bytes:
    return ("".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + end).replace("\n", newline).encode()


def request_of(fields: dict[str, Any]) -> CallRequest:
    request = read_request("/v1/chat/completions", json.dumps({"messages": [], **fields}).encode())
    assert request is not None
    return request


def joined(body: bytes) -> dict[str, Any]:
    reader = ResponseReader(request_of({}), HiddenFields(), events=True)
    reader.feed(body)
    reader.end()
    return reader.completion()


@given(says, st.lists(says, max_size=2), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_a_joined_stream_equals_the_whole_answer(say, others, exact, newline):
    """Text, tool calls, reasons, logprobs and ids are the same streamed and unstreamed."""
    say = Say(say.content, say.tool_calls, others=tuple(others))
    fields = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    fields |= {"logprobs": True, "return_token_ids": True} if exact else {}
    request = request_of(fields)
    whole = read_choices(completion(say, fields, chat=True, fingerprint="p@1"), request)
    streamed = read_choices(joined(as_stream(list(events(say, fields, fingerprint="p@1")), newline=newline)), request)

    assert [choice.call for choice in streamed] == [choice.call for choice in whole]


def test_usage_comes_in_an_event_without_choices():
    """The usage is the last event, if the author requested it."""
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    pieces = [{"choices": [choice], "usage": None}, {"choices": [], "usage": {"prompt_tokens": 3}}]
    assert joined(as_stream(pieces))["usage"] == {"prompt_tokens": 3}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (as_stream([{"choices": [{"index": 0, "delta": {"content": "a"}}]}], end=""), "ended before"),
        (b"", "ended before"),
        (as_stream([{"error": {"message": "out of memory"}}]), "out of memory"),
        (b"data: {oops\n\n", "not a JSON object"),
        (b"data: 1\n\n", "not a JSON object"),
    ],
)
def test_a_partial_stream_is_no_answer(body, said):
    """A stream that ends early is not recorded as an answer."""
    with pytest.raises(UnreadableAnswer, match=said):
        joined(body)
