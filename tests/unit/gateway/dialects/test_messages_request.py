import pytest

from nat.gateway.dialects import DialectMemory, Untranslatable
from nat.gateway.dialects.messages import to_chat

USER = {"role": "user", "content": "hello"}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PIXEL_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
LOOK = {
    "name": "look",
    "description": "See.",
    "input_schema": {"type": "object"},
    "cache_control": {"type": "ephemeral"},
}
LOOK_TOLD = {
    "type": "function",
    "function": {"name": "look", "description": "See.", "parameters": {"type": "object"}},
}


def chat(**body):
    return to_chat({"model": "claude", "max_tokens": 9, "messages": [USER], **body}, DialectMemory())


def messages(*said):
    return chat(messages=list(said))["messages"]


def test_common_fields_are_passed_on():
    """Limits, sampling options and stop texts mean the same in a chat; a stream also asks for its usage."""
    asked = chat(temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["END"], stream=True)
    del asked["messages"]
    assert asked == {
        "model": "claude",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_vendor_fields_are_left_out():
    """Caching, effort, thinking budgets and bookkeeping mean nothing to another model."""
    asked = chat(
        metadata={"user_id": "me"},
        thinking={"type": "adaptive"},
        service_tier="auto",
        context_management={"edits": []},
        output_config={"effort": "high"},
        cache_control={"type": "ephemeral"},
    )
    assert asked == chat()


@pytest.mark.parametrize(
    "system", ["Be brief.\n\nBe kind.", [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]]
)
def test_a_system_prompt_is_one_message(system):
    """A system prompt in blocks is one text, with an empty line between them."""
    assert chat(system=system)["messages"] == [{"role": "system", "content": "Be brief.\n\nBe kind."}, USER]


def test_a_system_message_keeps_its_place():
    """The API also allows system messages among the others."""
    late = {"role": "system", "content": "now in German"}
    assert messages(USER, late) == [USER, late]


def test_images_become_image_parts():
    """An image with text beside it keeps its place; its data becomes a data URL, its URL stays unchanged."""
    link = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    said = messages({"role": "user", "content": [PIXEL, {"type": "text", "text": "what?"}, link]})
    assert said == [
        {
            "role": "user",
            "content": [
                PIXEL_PART,
                {"type": "text", "text": "what?"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            ],
        }
    ]


def test_results_of_tools_come_before_the_rest():
    """Each result is a message of its own, in order; images of results and the user's text follow."""
    said = messages(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "4"},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "see"}, PIXEL]},
                {"type": "tool_result", "tool_use_id": "c", "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        }
    )
    assert said == [
        {"role": "tool", "tool_call_id": "a", "content": "4"},
        {"role": "tool", "tool_call_id": "b", "content": "see"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": [PIXEL_PART, {"type": "text", "text": "go on"}]},
    ]


def test_the_texts_of_an_answer_are_joined_unchanged():
    """The texts of an answer are joined without a separator, and calls are in the same message."""
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "ü"}}
    blocks = [{"type": "text", "text": "I "}, {"type": "text", "text": "look"}, call]
    _, said, _ = messages(USER, {"role": "assistant", "content": blocks}, USER)
    assert said == {
        "role": "assistant",
        "content": "I look",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "ü"}'}}],
    }


def test_thinking_of_another_model_is_left_out():
    """Only what this gateway signed goes back into the field that the signature names."""
    ours = {"type": "thinking", "thinking": "hm", "signature": "reasoning"}
    others = {"type": "thinking", "thinking": "secret", "signature": "EqQBCg=="}
    hidden = {"type": "redacted_thinking", "data": "xx"}
    blocks = [ours, others, hidden, {"type": "text", "text": "yes"}]
    _, said, _ = messages(USER, {"role": "assistant", "content": blocks}, USER)
    assert said == {"role": "assistant", "content": "yes", "reasoning": "hm"}


def test_a_documents_text_is_text():
    """A text document becomes text after its title."""
    document = {
        "type": "document",
        "title": "Rules",
        "source": {"type": "text", "media_type": "text/plain", "data": "No."},
    }
    assert messages({"role": "user", "content": [document]}) == [{"role": "user", "content": "Rules\n\nNo."}]


def test_tools_and_their_choice():
    """Tools keep name, description and schema; `disable_parallel_tool_use` and the choice become the chat's."""
    asked = chat(tools=[LOOK], tool_choice={"type": "tool", "name": "look", "disable_parallel_tool_use": True})
    assert asked["tools"] == [LOOK_TOLD]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert asked["parallel_tool_calls"] is False
    assert chat(tools=[LOOK], tool_choice={"type": "any"})["tool_choice"] == "required"
    assert "tool_choice" not in chat(tools=[LOOK])


def test_tools_that_the_vendor_runs_are_left_out():
    """No model calls them here; without any other tool there is nothing to choose either."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert chat(tools=[search, LOOK])["tools"] == [LOOK_TOLD]
    assert chat(tools=[search], tool_choice={"type": "auto"}) == chat()


def test_a_json_schema_is_passed_on():
    """The output format becomes the chat's response format."""
    asked = chat(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}})
    wanted = {"name": "answer", "schema": {"type": "object"}}
    assert asked["response_format"] == {"type": "json_schema", "json_schema": wanted}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": "hello"}, "messages: wanted a list of objects, got 'hello'"),
        ({"messages": []}, "messages: the last one must not"),
        ({"messages": [USER, {"role": "assistant", "content": "The answer is ("}]}, "messages: the last one must not"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: 'tool'"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages.0.content.0: 'video'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            "messages.0.content.0.source: 'file'",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, USER]},
            "messages.0.content.0",
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type: 'bash_20250124'"),
        ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "walk"}}, "tool_choice.name: 'walk'"),
        ({"tools": [LOOK], "tool_choice": {"type": "never"}}, "tool_choice.type: 'never'"),
    ],
)
def test_unsupported_fields_are_refused_by_their_place(body, place):
    """The error names the field, its value and a remedy."""
    with pytest.raises(Untranslatable, match=place.replace("(", r"\(")):
        chat(**body)
