"""What a chat template gets to see of messages and tools."""

import pytest

from nat.backend.messages import template_message, template_tool
from nat.backend.tokenizer import ChatNotRendered

ADD = {"name": "add", "parameters": {"type": "object"}}
WRAPPED = {"type": "function", "function": ADD}


def test_parts_become_one_text_and_nulls_go():
    """SDKs dump unset fields as null; templates that ask whether a field is there must not see them."""
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "audio": None}
    assert template_message(message) == {"role": "user", "content": "ab"}
    assert template_message({"role": "assistant", "content": None}) == {"role": "assistant", "content": None}


def test_a_developer_is_a_system_message():
    """Open models know the older name only."""
    assert template_message({"role": "developer", "content": "x"})["role"] == "system"


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1]", "[1]"),
        ("broken {", "broken {"),
        pytest.param("[" * 100_000, "[" * 100_000, id="nested deeply"),
        pytest.param('{"a": 1' + "0" * 5000 + "}", '{"a": 1' + "0" * 5000 + "}", id="an integer of 5,000 digits"),
        pytest.param('"\\ud800"', '"\\ud800"', id="an escaped lone surrogate"),
        pytest.param("\ud800", "\ud800", id="a lone surrogate"),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_arguments_of_calls_are_objects(sent, seen):
    """A template writes arguments with `tojson`; what is no JSON object stays as it is, and the input untouched."""
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": sent}}]}
    assert template_message(message)["tool_calls"][0]["function"]["arguments"] == seen
    assert message["tool_calls"][0]["function"]["arguments"] == sent


def test_other_parts_than_text_cannot_be_rendered():
    """An image is told, not left out."""
    with pytest.raises(ChatNotRendered, match="image_url"):
        template_message({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})


@pytest.mark.parametrize("tool", [ADD, WRAPPED, {"type": "function", "function": WRAPPED}])
def test_tools_are_wrapped_exactly_once(tool):
    """Clients send bare, wrapped and doubly wrapped definitions of the same function."""
    assert template_tool(tool) == WRAPPED
