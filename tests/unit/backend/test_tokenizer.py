"""What a chat template gets to see of messages and tools."""

from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from fakes.tiny_model import tiny_tokenizer
from nat.backend.tokenizer import ChatNotRendered, ChatTokenizer, template_message, template_tool
from nat.errors import ModelNotSupported

TOKENIZER = ChatTokenizer(tiny_tokenizer())
USER = [{"role": "user", "content": "the end"}]


def test_a_chat_ends_where_the_assistant_begins():
    """The template is rendered with its special tokens and the opening of the answer."""
    text = TOKENIZER.hf.decode(TOKENIZER.render_chat(USER))
    assert text == "<|im_start|>user\nthe end<|im_end|>\n<|im_start|>assistant\n"


def test_tools_and_arguments_reach_the_template():
    """Tool definitions and the caller's own template variables are the template's to use."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = "{{ tools[0].function.name }} {{ mood }}"
    ids = tokenizer.render_chat(
        USER, tools=[{"type": "function", "function": {"name": "add"}}], template_arguments={"mood": "calm"}
    )
    assert tokenizer.decode(ids) == "add calm"


@given(st.text(max_size=40))
def test_text_survives_encoding_and_decoding(text):
    """Nothing is normalised, stripped or cleaned up."""
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_decoding_leaves_special_tokens_out():
    """What ends a turn is not part of the answer's text."""
    assert TOKENIZER.decode([*TOKENIZER.encode("hi"), TOKENIZER.eos_token_id]) == "hi"


def test_a_part_of_a_character_keeps_its_byte():
    """Each token's bytes are its own, also where they are no whole character."""
    ids = TOKENIZER.encode("é€")
    data = bytes(byte for i in ids for byte in TOKENIZER.token_text(i).data)
    assert len(ids) == 5
    assert data.decode() == "é€"


def test_a_model_without_a_chat_template_says_so():
    """The remedy is named: the completions route, or a template."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = None
    with pytest.raises(ModelNotSupported, match="no chat template"):
        tokenizer.render_chat(USER)


def test_messages_that_the_template_refuses_are_the_callers_error():
    """The error quotes the template."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ChatNotRendered, match="roles must alternate"):
        tokenizer.render_chat(USER)


@given(st.integers(0, 264))
def test_a_token_is_found_by_how_it_reads(token_id):
    """Text and bytes of a logprobs entry lead back to the token, also if it is a part of a character."""
    read = TOKENIZER.token_text(token_id)
    assert TOKENIZER.token_id(read.text, read.data) == token_id
    if len(read.text) == 1 and read.text.isascii():
        assert TOKENIZER.token_id(read.text) == token_id


def test_a_token_is_found_by_its_entry_in_the_vocabulary():
    """Some servers show the vocabulary's spelling; what is in no vocabulary is not guessed."""
    entry = TOKENIZER.hf.convert_ids_to_tokens(260)
    assert entry == "Ġthe"
    assert TOKENIZER.token_id(entry) == TOKENIZER.token_id(" the") == 260
    assert TOKENIZER.token_id("<|im_end|>") == TOKENIZER.eos_token_id
    assert TOKENIZER.token_id("no such token") is None


def test_no_argument_of_the_renderer_is_a_template_variable():
    """The template itself, the tools and whether to tokenise are arguments of the function that renders."""
    arguments = {*signature(PreTrainedTokenizerBase.apply_chat_template).parameters, "messages", "eos_token"}
    assert {"chat_template", "tokenize", "tools", "documents", "return_tensors", "max_length", "kwargs"} <= arguments
    for name in arguments:
        with pytest.raises(ChatNotRendered, match=f"^{name}: ") as refused:
            TOKENIZER.render_chat(USER, template_arguments={name: "x"})
        assert refused.value.param == "chat_template_kwargs"


def test_any_error_in_a_template_is_a_refusal():
    """A template is a program on foreign data: it may divide by zero or recurse without end, not only raise its own."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    for source, error in {
        "{{ 1 / 0 }}": "ZeroDivisionError",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "Rec",
    }.items():
        tokenizer.hf.chat_template = source
        with pytest.raises(ChatNotRendered, match=error):
            tokenizer.render_chat(USER)


def test_texts_are_kept_by_their_bytes_and_not_by_their_number():
    """A thousand long texts took a gigabyte; now the oldest are forgotten."""
    tokenizer = ChatTokenizer(tiny_tokenizer(), max_cache_bytes=100_000)
    for n in range(20):
        assert tokenizer.encode(f"{n} " + "a " * 5000) == tokenizer.encode(f"{n} " + "a " * 5000)
        assert tokenizer.cached_bytes <= 100_000
    assert tokenizer.cached_bytes > 20_000


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
    """An image is an error, not left out."""
    with pytest.raises(ChatNotRendered, match="image_url"):
        template_message({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})


@pytest.mark.parametrize("tool", [ADD, WRAPPED, {"type": "function", "function": WRAPPED}])
def test_tools_are_wrapped_exactly_once(tool):
    """Clients send bare, wrapped and doubly wrapped definitions of the same function."""
    assert template_tool(tool) == WRAPPED
