"""Messages and tools as chat templates see them."""

from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from fakes.tiny_model import tiny_tokenizer
from nat.backend.tokenizer import ChatNotRendered, ChatOptions, ChatTokenizer, template_message, template_tool
from nat.errors import ModelNotSupported

TOKENIZER = ChatTokenizer(tiny_tokenizer())
USER = [{"role": "user", "content": "the end"}]


def test_a_chat_ends_where_the_assistant_begins():
    """The template is rendered with special tokens and with the start of the answer."""
    text = TOKENIZER.hf.decode(TOKENIZER.render_chat(USER))
    assert text == "<|im_start|>user\nthe end<|im_end|>\n<|im_start|>assistant\n"


@given(st.text(max_size=40))
def test_text_survives_encoding_and_decoding(text):
    """Encoding and decoding change no character."""
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@pytest.mark.parametrize(
    "template",
    [
        (
            "{% for m in messages %}{{ m.role + m.content }}{% for c in m.tool_calls or [] %}"
            "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
        ),
        (
            "{% for m in messages %}{{ m.role + (m.content or '') }}{% for c in m.tool_calls or [] %}"
            "{{ '' + c.function.arguments }}{% endfor %}{% endfor %}"
        ),
    ],
)
def test_templates_get_what_they_take(template):
    """Some templates take no missing content, some only arguments as text; both get what they take."""
    hf = tiny_tokenizer()
    hf.chat_template = template
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    text = ChatTokenizer(hf).render_text([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert text == 'assistant{"a": 1}'


SYSTEM, SAID = {"role": "system", "content": "short"}, {"role": "assistant", "content": "<think>so</think>an"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
RESULT = {"role": "tool", "content": "3"}
FIRST_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}"
    "{% elif m.role != 'system' and m.role != 'tool' %}{{ m.content.split('</think>')[-1] }}{% endif %}{% endfor %}"
)
NO_CALLS = "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"

PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "messages", "lost"),
    [
        (FIRST_SYSTEM, [SYSTEM, *USER, SAID, *USER], []),
        (FIRST_SYSTEM, [SYSTEM, SYSTEM, *USER], ["system message"]),
        (FIRST_SYSTEM, [SYSTEM, *USER, SAID, SYSTEM, *USER], ["system message"]),
        (FIRST_SYSTEM, [*USER, SYSTEM], ["system message"]),
        (FIRST_SYSTEM, [*USER, CALL, RESULT], ["tool message"]),
        (FIRST_SYSTEM, [*USER, {**CALL, "content": "I look."}], ["text beside a tool call"]),
        (NO_CALLS, [*USER, CALL, RESULT], ["tool call"]),
        (PARTS, USER, ["user message", "assistant message"]),
    ],
)
def test_what_the_template_leaves_out_is_named_once(caplog, template, messages, lost):
    """A user would think that the model has seen it; thinking of earlier answers is left out on purpose."""
    hf = tiny_tokenizer()
    hf.chat_template = template
    tokenizer = ChatTokenizer(hf)
    for chat in (messages, messages, [*messages, SAID, *USER]):
        tokenizer.render_text(chat)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        f"the chat template leaves out: {kind}" for kind in lost
    ]
    assert tokenizer.lost == set(lost)


def test_a_partial_character_keeps_its_bytes():
    """Each token has its own bytes, even if they are no whole character."""
    ids = TOKENIZER.encode("é€")
    data = bytes(byte for i in ids for byte in TOKENIZER.token_text(i).data)
    assert len(ids) == 5
    assert data.decode() == "é€"


def test_messages_that_the_template_refuses_are_the_callers_error():
    """The error of the template's refusal is the caller's and quotes the template."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ChatNotRendered, match="roles must alternate"):
        tokenizer.render_chat(USER)


def test_no_argument_of_the_renderer_is_a_template_variable():
    """Arguments of the rendering function, such as the template and the tools, cannot be set as variables."""
    arguments = {*signature(PreTrainedTokenizerBase.apply_chat_template).parameters, "messages", "eos_token"}
    assert {"chat_template", "tokenize", "tools", "documents", "return_tensors", "max_length", "kwargs"} <= arguments
    for name in arguments:
        with pytest.raises(ChatNotRendered, match=f"^{name}: ") as refused:
            TOKENIZER.render_text(USER, template_arguments={name: "x"})
        assert refused.value.param == "chat_template_kwargs"


def test_configured_variables_reach_every_rendering():
    """A request's own variable wins, key by key; training texts have no request, and are rendered with them, too."""
    hf = tiny_tokenizer()
    hf.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %} {{ thinks }} {{ mood }}"
    tokenizer = ChatTokenizer(hf, options=ChatOptions({"thinks": False, "mood": "calm"}))
    assert tokenizer.render_text(USER).endswith("False calm")
    assert tokenizer.render_text(USER, template_arguments={"thinks": True}).endswith("True calm")
    assert tokenizer.render_text(USER, for_answer=False).endswith("False calm")


DECLARED = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "content": {"content": "text", "repeats": True},
        "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True},
    },
}


def test_a_configured_format_is_used_or_refused():
    """It comes before any other; one that misreads the template's calls, or is none, never gets to a request."""
    hf = tiny_tokenizer()
    tokenizer = ChatTokenizer(hf, options=ChatOptions(response_template=DECLARED))
    tokenizer.check_options()
    assert tokenizer.words.format.origin == "the YAML"
    calls = DECLARED["fields"] | {"tool_calls": {**DECLARED["fields"]["tool_calls"], "open": "[CALL]"}}
    for template, problem in (
        ({**DECLARED, "fields": calls}, "misreads a call"),
        ({}, "no response template"),
        ({**DECLARED, "fields": {"content": 3}}, "no response template"),
    ):
        tokenizer = ChatTokenizer(hf, options=ChatOptions(response_template=template))
        with pytest.raises(ModelNotSupported, match=f"response_template: the YAML: .*{problem}"):
            tokenizer.check_options()


ADD = {"name": "add", "parameters": {"type": "object"}}
WRAPPED = {"type": "function", "function": ADD}


def test_parts_are_joined_and_nulls_dropped():
    """SDKs send unset fields as null, which templates must not see."""
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "audio": None}
    assert template_message(message) == {"role": "user", "content": "ab"}
    assert template_message({"role": "assistant", "content": None}) == {"role": "assistant", "content": None}


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
        (None, {}),
        ("", {}),
    ],
)
def test_arguments_of_calls_are_objects(sent, seen):
    """Templates write arguments with `tojson`, so JSON objects are parsed; other text and the input stay unchanged."""
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": sent}}]}
    assert template_message(message)["tool_calls"][0]["function"]["arguments"] == seen
    assert message["tool_calls"][0]["function"]["arguments"] == sent


@pytest.mark.parametrize("tool", [ADD, WRAPPED, {"type": "function", "function": WRAPPED}])
def test_tools_are_wrapped_exactly_once(tool):
    """Clients send bare, wrapped and doubly wrapped definitions of one function."""
    assert template_tool(tool) == WRAPPED
