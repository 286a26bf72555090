"""Requests to the server are read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.capture.context import CapturePolicy
from nat.capture.request import (
    is_call_route,
    missing_defaults,
    read_request,
    recording_fields,
    with_fields,
    with_model,
    with_system_text,
)


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
    """Any path that ends in a completions route is read."""
    assert is_call_route(path) is calls


def test_a_chat_keeps_its_messages_as_they_are():
    """Order, roles, tool results and repetitions are kept."""
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


@pytest.mark.parametrize(
    ("prompt", "conversations", "ids"),
    [
        ("hi", ["hi"], None),
        (["a", "b"], ["a", "b"], None),
        (["a"], ["a"], None),
        ([1, 2], [[1, 2]], [[1, 2]]),
        ([1], [[1]], [[1]]),
        ([[1]], [[1]], [[1]]),
        ([[1], [2]], [[1], [2]], [[1], [2]]),
    ],
)
def test_a_completions_prompt_is_one_user_message_each(prompt, conversations, ids):
    """A prompt may be a text, ids, or a list of either; ids are exact without a server's report."""
    request = read("/v1/completions", model="m", prompt=prompt)
    assert request.conversations == [[{"role": "user", "content": content}] for content in conversations]
    assert request.prompt_ids == ids


NOTHING = CapturePolicy()
EXACT = CapturePolicy(logprobs=True, token_ids=True)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.sampled_from(["model", "seed", "stop", "logprobs", "}"]), json_values)


def add(fields: dict[str, Any], *, chat: bool = True, policy: CapturePolicy = NOTHING, seed=None, **defaults: Any):
    own = missing_defaults(fields, chat=chat, defaults=defaults, seed=seed)
    return {**own, **recording_fields({**fields, **own}, chat=chat, policy=policy)}


def test_defaults_fill_only_what_is_unset():
    """A field that the request sets is kept; null counts as unset."""
    assert add({"temperature": 0, "top_p": None}, temperature=1.0, top_p=0.5, stop=["x"]) == {
        "top_p": 0.5,
        "stop": ["x"],
    }


def test_training_requests_logprobs_and_ids():
    """Logprobs and ids are requested even if the author declined them, because training needs them."""
    asked = {"logprobs": True, "return_token_ids": True}
    assert add({}, policy=EXACT) == asked
    assert add({"logprobs": False, "return_token_ids": False}, policy=EXACT) == asked
    assert add(asked, policy=EXACT) == {}


@given(json_objects, json_objects, st.sampled_from([None, 2]))
def test_splicing_equals_merging(fields, added, indent):
    """Splicing into the body gives the JSON of merging the objects, with each key once."""
    body = with_fields(json.dumps(fields, indent=indent).encode() + b"\n", fields, added)
    pairs = json.loads(body, object_pairs_hook=list)
    assert json.loads(body) == {**fields, **added}
    assert len(pairs) == len({key for key, _ in pairs})


@given(json_objects, st.text(max_size=5), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_a_redirect_replaces_only_the_model_name(fields, name, separators, nested):
    """Only the body's own model name changes, whatever else it holds."""
    fields = {**fields, "model": "base", "messages": [{"role": "user", "content": '"model":"base"'}]}
    if nested:
        fields["metadata"] = {"model": "base"}
    body = json.dumps(fields, ensure_ascii=False, separators=separators).encode()
    assert json.loads(with_model(body, fields, name)) == {**fields, "model": name}


USER = {"role": "user", "content": "hi"}
LATER = {"role": "system", "content": "later"}
TEXT_PART = {"type": "text", "text": "be kind"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER], [{"role": "system", "content": "be kind"}, USER]),
        (
            [USER, {"role": "system", "content": "s", "name": "n"}, USER, LATER],
            [USER, {"role": "system", "content": "s\nbe kind", "name": "n"}, USER, LATER],
        ),
        (
            [{"role": "developer", "content": [{"type": "text", "text": "d"}]}, USER],
            [{"role": "developer", "content": [{"type": "text", "text": "d"}, TEXT_PART]}, USER],
        ),
        ([{"role": "system", "content": None}], [{"role": "system", "content": "\nbe kind"}]),
        (["no message", USER], [{"role": "system", "content": "be kind"}, "no message", USER]),
    ],
)
def test_a_text_is_added_to_the_first_system_message(messages, expected):
    """It ends the first system or developer message, of text or parts; without one it becomes the first message."""
    body = json.dumps({"messages": messages, "model": "m"}).encode()
    request = read("/v1/chat/completions", messages=messages, model="m")
    changed, sent = with_system_text(request, body, "be kind")
    assert json.loads(sent) == {"messages": expected, "model": "m"} == changed.fields
    assert changed.conversations == [expected]
