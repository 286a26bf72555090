"""Reading what goes to the server."""

import json
from typing import Any

import pytest

from nat.capture.request import is_call_route, read_request


def read(path: str, **fields: Any):
    request = read_request(path, json.dumps(fields).encode())
    assert request is not None
    return request


@pytest.mark.parametrize(
    ("path", "calls"),
    [
        ("/v1/chat/completions", True),
        ("/v1/completions/", True),
        ("/openai/x/completions", True),
        ("/v1/models", False),
    ],
)
def test_routes(path, calls):
    """Whatever stands before it, a route that ends in completions is one to read."""
    assert is_call_route(path) is calls


def test_a_chat_keeps_its_messages_as_they_are():
    """Order, roles, tool results and repetitions belong to the conversation."""
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "yes"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "user", "content": "yes"},
    ]
    request = read("/v1/chat/completions", model="m", messages=messages, tools=[{"type": "function"}], n=3)
    assert request.conversations == [messages]
    assert (request.model, request.tools, request.choices_per_conversation) == ("m", [{"type": "function"}], 3)


@pytest.mark.parametrize(("asked", "choices"), [(2.0, 2), ("3", 3), (None, 1), ("many", 1), (True, 1), ([2], 1)])
def test_the_number_of_choices_may_come_in_any_type(asked, choices):
    """What is no number is the server's to refuse, and must not break the recording."""
    assert read("/v1/chat/completions", messages=[], n=asked).choices_per_conversation == choices


@pytest.mark.parametrize(
    ("prompt", "conversations", "ids"),
    [
        ("hi", ["hi"], None),
        (["a", "b"], ["a", "b"], None),
        ([1, 2], [[1, 2]], [[1, 2]]),
        ([[1], [2]], [[1], [2]], [[1], [2]]),
    ],
)
def test_a_completions_prompt_is_one_user_message_each(prompt, conversations, ids):
    """A prompt may be a text, ids, or a list of either; ids are exact already."""
    request = read("/v1/completions", model="m", prompt=prompt)
    assert request.conversations == [[{"role": "user", "content": content}] for content in conversations]
    assert request.prompt_ids == ids


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"messages": "hi"}'])
def test_a_malformed_body_is_left_to_the_server(body):
    """What is no request is no call; the server's refusal tells its author."""
    assert read_request("/v1/chat/completions", body) is None
