"""Requests that violate the API at any place."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nat.gateway.dialects import DialectMemory, Untranslatable, messages, responses

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
RESPONSES = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "patch"}]},
        {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "low"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "b"}], "encrypted_content": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "c"}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}", "namespace": "sky"},
        {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "d"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "e"}]},
        {"type": "custom_tool_call_output", "call_id": "2", "output": "f"},
    ],
    "include": ["reasoning.encrypted_content"],
    "tools": [LOOK, {"type": "namespace", "name": "sky", "tools": [LOOK]}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
    "previous_response_id": None,
}
MESSAGES = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "a"}],
    "messages": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "b", "signature": "reasoning"},
                {"type": "text", "text": "c"},
                {"type": "tool_use", "id": "1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "d"}]},
                {"type": "document", "title": "t", "source": {"type": "text", "data": "e"}},
                {"type": "document", "source": {"type": "content", "content": "f"}},
            ],
        },
    ],
    "stop_sequences": ["g"],
    "tools": [{"name": "look", "input_schema": {}}],
    "tool_choice": {"type": "tool", "name": "look"},
    "output_config": {"format": {"type": "json_schema", "schema": {}}},
}
junk = st.sampled_from(
    [None, True, 0, 1.5, "", "text", "function", [], ["x"], [None], [[]], {}, {"type": "x"}, {"a": {}}]
)


@st.composite
def spoilt(draw, body):
    """The body with wrong values at one or two of its places."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 2))):
        at = body
        while True:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not (isinstance(at[key], dict | list) and at[key] and draw(st.booleans())):
                break
            at = at[key]
        at[key] = copy.deepcopy(draw(junk))
    return body


@pytest.mark.parametrize(("dialect", "body"), [(messages, MESSAGES), (responses, RESPONSES)])
def test_the_whole_body_is_a_chat(dialect, body):
    """The request that is mutated below is valid."""
    assert dialect.to_chat(body, DialectMemory())["messages"]


@settings(deadline=None, max_examples=200)
@given(data=st.data(), stream=st.booleans())
def test_every_request_is_translated_or_refused(data, stream):
    """No request crashes the gateway, and it can answer each request that it translates."""
    dialect, whole = data.draw(st.sampled_from([(messages, MESSAGES), (responses, RESPONSES)]))
    body = data.draw(spoilt(whole))
    before = copy.deepcopy(body)
    try:
        chat = dialect.to_chat(body, DialectMemory())
    except Untranslatable:
        return
    finally:
        assert body == before, "the agent's request stays as it is"
    assert all(isinstance(message["role"], str) for message in chat["messages"])
    answer = {"id": "a", "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}
    chunk = {"id": "a", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}
    if stream:
        events = dialect.stream(body, DialectMemory())
        assert events.push(chunk) + events.finish()
    else:
        assert dialect.from_chat(answer, body, DialectMemory())["id"]
