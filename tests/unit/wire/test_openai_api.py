"""Which fields of chat and completion requests are taken, and which are refused by name."""

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as TextParams
from pydantic import ValidationError

from nat.errors import findings_of
from nat.wire.openai_api import ChatCompletionRequest, CompletionRequest

CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": '{"q": "a"}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Hi"}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "x"}


def chat(**fields):
    return ChatCompletionRequest.model_validate({"model": "m", "messages": [USER], **fields})


def after(**answer):
    return {"messages": [USER, {"role": "assistant", "content": None, **answer}, RESULT]}


def refusal(**fields):
    with pytest.raises(ValidationError) as refused:
        chat(**fields)
    [finding] = findings_of(refused.value)
    return str(finding)


@pytest.mark.parametrize(("sdk", "kind"), [(ChatParams, ChatCompletionRequest), (TextParams, CompletionRequest)])
def test_every_field_of_the_installed_sdk_is_known(sdk, kind):
    """A newer SDK never gets "unknown key": a field is done, changes nothing, or is refused as not supported."""
    unknown = set()
    fields = {**dict.fromkeys(sdk.__annotations__), "model": "m", "messages": [USER], "prompt": "x"}
    kind.model_validate(fields, context=unknown)
    assert unknown <= {"messages", "prompt"}


@pytest.mark.parametrize(
    "fields",
    [
        after(tool_calls=[{**CALL, "index": 0, "extra_content": {"google": {"thought_signature": "x"}}}]),
        after(tool_calls=[{**CALL, "function": {**CALL["function"], "parsed_arguments": {"q": "a"}}}]),
        after(tool_calls=[{"function": {"name": "look", "arguments": {"q": "a"}}}]),
        after(tool_calls=[], function_call=None, refusal=None, annotations=[], audio=None, prefix=False),
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "S", "cache_control": {}}]}]},
        {"tools": [{**TOOL, "cache_control": {}}, {**TOOL, "function": {**TOOL["function"], "strict": True}}]},
        {"prompt_cache_retention": "24h", "timeout": 30, "extra_headers": {}, "request_id": "1", "moderation": None},
        {"stream": True, "stream_options": {"include_obfuscation": False, "continuous_usage_stats": False}},
    ],
)
def test_keys_that_change_no_answer_are_taken(fields):
    """Accumulators of streams, proxies and SDKs send them; no template sees those inside of calls and tools."""
    calls = [call for message in chat(**fields).messages for call in message.tool_calls or ()]
    for call in calls:
        assert {name for name, _ in call} == {"id", "type", "function"}
        assert {name for name, _ in call.function} == {"name", "arguments"}


@pytest.mark.parametrize(
    ("fields", "place", "word"),
    [
        (after(function_call={"name": "look", "arguments": "{}"}), "messages.1", "function_call"),
        (after(audio={"id": "a"}), "messages.1", "audio"),
        (after(prefix=True), "messages.1", "prefix"),
        (after(tool_calls=[{**CALL, "type": "custom"}]), "messages.1.tool_calls.0.type", "function"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content", "a valid string"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "continuous_usage_stats", "False"),
        ({"tools": [{**TOOL, "type": "web_search"}]}, "tools.0.type", "function"),
        ({"web_search_options": {}}, "", "web_search_options"),
        *(
            ({"messages": [{"role": "user", "content": [{"type": kind, kind: {}}]}]}, "messages.0.content", "image")
            for kind in ("image_url", "input_audio", "file")
        ),
    ],
)
def test_what_acts_and_is_not_done_is_refused_by_name(fields, place, word):
    """One finding says where and what; a part that is no text is told that models get no image, audio or file."""
    message = refusal(**fields)
    assert place in message
    assert word in message


def test_parts_of_a_content_are_one_text():
    """A refusal of an earlier answer is text, too."""
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert chat(messages=[{"role": "assistant", "content": parts}]).messages[0].content == "ab"
