"""Chat templates are rendered as transformers renders them."""

import pytest
from jinja2.exceptions import TemplateError, UndefinedError

from fakes.chat_families import FAMILIES
from fakes.tiny_model import tiny_tokenizer
from nat.backend.tokenizer import ChatNotRendered, ChatTokenizer
from nat.sandbox.template import render

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "<é>"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CHAT = [
    {"role": "user", "content": "2+2?", "name": None},
    {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "4 \ud800"},
    {"role": "assistant", "content": "It is 4. "},
    {"role": "user", "content": "Sure?"},
]
PLAIN = [CHAT[0], CHAT[3], CHAT[4]]
SOURCES = [
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
    "{{ messages | tojson(sort_keys=true, ensure_ascii=true) }}",
    "{% for m in messages %}\n  {% if loop.last %}{% break %}{% endif %}\n  {{ m.role }}\n{% endfor %}\n",
    "{% for m in messages %}\n  {% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}\n",
    "{% set ns = namespace(a=1, self=2) %}{% set ns.a = 3 %}{{ ns.a }} {{ ns.self }}",
    "{{ dict(x=1) }} {{ dict.fromkeys([1, 2], 0) }}",
    "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{{ 'name' in m }}{{ 'content' in m }}{% endfor %}",
    "{{ eos_token }} {{ documents }} {{ tools }} {{ mood }} {{ add_generation_prompt }} {{ strftime_now('%Y') }}",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
]


def rendered_by_transformers(tokenizer, messages, tools):
    return tokenizer.hf.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, tokenize=False, mood="calm"
    )


@pytest.mark.parametrize("messages", [CHAT, PLAIN], ids=["calls", "plain"])
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["no tools", "tools"])
@pytest.mark.parametrize("source", [*FAMILIES, *SOURCES])
def test_templates_write_what_they_write_in_transformers(source, messages, tools):
    """The text is the same, or both refuse; a missing content that a template refuses is an empty one here."""
    tokenizer = FAMILIES[source].tokenizer() if source in FAMILIES else ChatTokenizer(tiny_tokenizer())
    if source not in FAMILIES:
        tokenizer.hf.chat_template = source
    try:
        expected = rendered_by_transformers(tokenizer, messages, tools)
    except UndefinedError:
        expected = rendered_by_transformers(tokenizer, [{**m, "content": m["content"] or ""} for m in messages], tools)
    except (TemplateError, TypeError) as error:
        with pytest.raises(ChatNotRendered, match=type(error).__name__):
            tokenizer.render_text(messages, tools=tools, template_arguments={"mood": "calm"})
    else:
        assert tokenizer.render_text(messages, tools=tools, template_arguments={"mood": "calm"}) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ dict.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no') }}",
    ],
)
def test_the_sandbox_keeps_templates_from_pythons_internals(source):
    """Such a template is refused here and by transformers."""
    with pytest.raises((TemplateError, TypeError), match=r"unsafe|must not set|no"):
        render(source, {"messages": []})


def test_named_templates_are_chosen_by_tools():
    """A tokenizer may have several templates."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = {"default": "plain", "tool_use": "{{ tools | length }} tools"}
    assert tokenizer.render_text(PLAIN) == "plain"
    assert tokenizer.render_text(PLAIN, tools=[TOOL]) == "1 tools"
    assert tokenizer.render_text(PLAIN, tools=[]) == "0 tools"
