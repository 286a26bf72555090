import pytest

from nat.gateway.dialects import DialectMemory, Untranslatable
from nat.gateway.dialects.responses import to_chat

LOOK = {"type": "function", "name": "look", "description": "See.", "parameters": {"type": "object"}, "strict": False}
LOOK_TOLD = {
    "type": "function",
    "function": {"name": "look", "description": "See.", "parameters": {"type": "object"}, "strict": False},
}
PATCH = {"type": "custom", "name": "patch", "description": "Edit.", "format": {"type": "grammar", "syntax": "lark"}}
TEXT_SCHEMA = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def chat(**body):
    return to_chat({"model": "gpt", "input": "hello", **body}, DialectMemory())


def messages(*items, **body):
    return chat(input=list(items), **body)["messages"]


def said(role, *texts):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def called(call_id, name="look", arguments="{}", **others):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **others}


def chat_called(call_id, name="look", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_common_fields_are_passed_on():
    """Limits and sampling options mean the same in a chat; fields of the upstream are kept; a stream requests usage."""
    asked = chat(max_output_tokens=9, temperature=0.5, top_p=0.9, seed=3, stream=True, stop=["END"])
    assert asked == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_vendor_fields_are_left_out():
    """Effort, verbosity, caching and bookkeeping mean nothing to another model."""
    asked = chat(
        reasoning={"effort": "high", "summary": "auto"},
        text={"verbosity": "low", "format": {"type": "text"}},
        include=["reasoning.encrypted_content"],
        store=False,
        metadata={"a": "b"},
        prompt_cache_key="k",
        truncation="auto",
        tool_choice="auto",
        parallel_tool_calls=True,
    )
    assert asked == chat()


def test_consecutive_system_texts_are_one_message():
    """Instructions, system and developer messages become one message, separated by empty lines."""
    items = (
        said("developer", "B", "C"),
        {"role": "system", "content": "D"},
        said("user", "hi"),
        said("developer", "E"),
    )
    assert messages(*items, instructions="A") == [
        {"role": "system", "content": "A\n\nB\n\nC\n\nD"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "E"},
    ]


def test_the_items_of_one_answer_are_one_message():
    """Thinking, text and parallel calls were sampled as one message and are sent as one."""
    thinking = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    _, answer, *results = messages(
        said("user", "hi"),
        thinking,
        said("assistant", "I ", "look"),
        called("a", arguments='{"at":1}'),
        called("b"),
        {"type": "function_call_output", "call_id": "a", "output": "4"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "5"}]},
    )
    assert answer == {
        "role": "assistant",
        "content": "I look",
        "reasoning_content": "hm",
        "tool_calls": [chat_called("a", arguments='{"at":1}'), chat_called("b")],
    }
    assert results == [
        {"role": "tool", "tool_call_id": "a", "content": "4"},
        {"role": "tool", "tool_call_id": "b", "content": "5"},
    ]


def test_a_text_between_calls_and_results_belongs_to_the_calls():
    """In a chat, results must follow their calls directly."""
    (answer,) = messages(called("a"), said("assistant", "looking"))
    assert answer == {"role": "assistant", "content": "looking", "tool_calls": [chat_called("a")]}


def test_thinking_that_was_encoded_here_is_restored():
    """Agents that keep only `encrypted_content` return the sampled thinking; other vendors' content is left out."""
    ours = {"type": "reasoning", "summary": [], "encrypted_content": '{"reasoning": "hm"}'}
    others = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAA"}
    assert messages(ours, others, said("assistant", "A")) == [
        {"role": "assistant", "content": "A", "reasoning": "hm"},
    ]


def test_images_stand_after_the_results_of_all_tools():
    """A tool message holds text; the images of parallel results follow together."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    assert messages(
        {"role": "user", "content": [{"type": "input_text", "text": "see"}, picture]},
        called("a"),
        called("b"),
        {"type": "function_call_output", "call_id": "a", "output": [picture]},
        {"type": "function_call_output", "call_id": "b", "output": "5"},
    ) == [
        {"role": "user", "content": [{"type": "text", "text": "see"}, part]},
        {"role": "assistant", "content": None, "tool_calls": [chat_called("a"), chat_called("b")]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "tool", "tool_call_id": "b", "content": "5"},
        {"role": "user", "content": [part]},
    ]


def test_a_custom_tool_is_a_function_with_one_text():
    """Its calls hold the text in JSON for the model, and as it is for the agent."""
    asked = chat(
        tools=[PATCH],
        input=[
            said("user", "hi"),
            {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "*** ü"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
        ],
    )
    assert asked["tools"] == [
        {"type": "function", "function": {"name": "patch", "description": "Edit.", "parameters": TEXT_SCHEMA}}
    ]
    assert asked["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [chat_called("a", "patch", '{"input": "*** ü"}')]},
        {"role": "tool", "tool_call_id": "a", "content": "done"},
    ]


def test_a_namespace_is_a_prefix_of_its_tools_names():
    """Two tools of one name in different namespaces stay two tools, in the request and in its history."""
    tools = [LOOK, {"type": "namespace", "name": "sky", "tools": [LOOK]}]
    asked = chat(tools=tools, input=[said("user", "hi"), called("a", namespace="sky"), called("b")])
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["look", "sky__look"]
    assert [call["function"]["name"] for call in asked["messages"][1]["tool_calls"]] == ["sky__look", "look"]


def test_tools_may_come_among_the_items():
    """An item that adds tools becomes no message."""
    asked = chat(input=[{"type": "additional_tools", "role": "developer", "tools": [LOOK]}, said("user", "hi")])
    assert asked["tools"] == [LOOK_TOLD]
    assert asked["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
        ({"type": "custom", "name": "patch"}, {"type": "function", "function": {"name": "patch"}}),
    ],
)
def test_how_a_tool_is_chosen(choice, told):
    """The tool choice becomes the chat's field, and `parallel_tool_calls: false` is passed on."""
    asked = chat(tools=[LOOK, PATCH], tool_choice=choice, parallel_tool_calls=False)
    assert (asked["tool_choice"], asked["parallel_tool_calls"]) == (told, False)


def test_only_allowed_tools_are_sent():
    """With a choice among some tools, the model sees only these."""
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}
    asked = chat(tools=[LOOK, PATCH], tool_choice=choice)
    assert (asked["tools"], asked["tool_choice"]) == ([LOOK_TOLD], "required")


def test_tools_that_the_vendor_runs_are_left_out():
    """No model calls them here; without any other tool there is nothing to choose either."""
    hosted = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    assert chat(tools=[*hosted, LOOK])["tools"] == [LOOK_TOLD]
    assert chat(tools=hosted, tool_choice="auto") == chat()


def test_json_formats_are_passed_on():
    """Both forms of JSON output become the chat's response format."""
    schema = {"type": "json_schema", "name": "point", "schema": {"type": "object"}, "strict": True}
    wanted = {"name": "point", "schema": {"type": "object"}, "strict": True}
    assert chat(text={"format": schema})["response_format"] == {"type": "json_schema", "json_schema": wanted}
    assert chat(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"input": 5}, "input: wanted a list of objects, got 5"),
        ({"input": []}, "input: wanted at least one message"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role: 'tool'"),
        ({"input": [{"type": "web_search_call"}]}, "input.0: 'web_search_call'"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0: 'input_file'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input.0.content.0"),
        ({"input": [{"type": "function_call", "name": "look"}]}, "input.0.call_id: wanted a text, got None"),
        (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            "input.0: 'msg_1' is not a stored item of this",
        ),
        ({"previous_response_id": "resp_0"}, "previous_response_id: 'resp_0' is not a stored response of this rollout"),
        ({"background": True}, "background: "),
        ({"conversation": "conv_1"}, "conversation: "),
        ({"prompt": {"id": "p"}}, "prompt: "),
        ({"top_logprobs": 3}, "top_logprobs: "),
        ({"include": ["message.output_text.logprobs"]}, "include: 'message.output_text.logprobs'"),
        ({"tools": [{"type": "local_shell"}]}, "tools.0.type: 'local_shell'"),
        ({"tools": [LOOK], "tool_choice": {"type": "function", "name": "walk"}}, "tool_choice: 'walk'"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type: 'xml'"),
    ],
)
def test_unsupported_fields_are_refused_by_their_place(body, place):
    """The error names the field, its value and a remedy."""
    with pytest.raises(Untranslatable, match=place):
        chat(**body)
