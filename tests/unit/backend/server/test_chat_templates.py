"""Conversations of three turns with templates of our own, in the formats of model families."""

import pytest

from fakes.call_templates import TEMPLATES
from fakes.template_play import played
from fakes.tiny_fixtures import mostly_slow

QWEN3 = (
    "{% set seen = namespace(user=-1) %}{% for m in messages if m.role == 'user' %}"
    "{% set seen.user = messages.index(m) %}{% endfor %}{{ tools | tojson }}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > seen.user and (loop.last or m.reasoning_content) %}"
    "<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.mark.parametrize("family", mostly_slow(TEMPLATES, "hermes", "llama", "mistral", "coder", "gpt-oss"))
async def test_calls_are_read_and_continued_exactly(family):
    """Whole and streamed, cut off and malformed; a template that rewrites nothing gives one row for three turns."""
    found = await played(TEMPLATES[family])
    told = ("one", "several", "streamed", "cut", "malformed", "null")
    wrong = [name for name in told if getattr(found, name) is False]
    assert (found.renders, found.tried, wrong, found.failed) == ("", "", [], {})
    assert (found.one, found.reasoning in (None, True), found.kept in (None, True)) == (True, True, True)
    assert (found.loop_rows, found.drift) == (1, [])


async def test_thinking_that_is_dropped_later_and_thinking_that_is_off():
    """Thinking is dropped when the user speaks, so one prompt drifts; without it, the empty thoughts are dropped."""
    found = await played(QWEN3)
    assert (found.reasoning, found.kept, found.loop_rows, found.rows) == (True, True, 1, 2)
    assert found.drift == ["template_rewrites (4)"]
    off = await played(QWEN3, enable_thinking=False)
    assert (off.one, off.reasoning, off.loop_rows, off.rows) == (True, None, 3, 4)
    assert off.drift == [f"template_rewrites ({number})" for number in (2, 3, 4)]


async def test_a_template_without_calls_or_that_refuses_is_named():
    """What was tried is in the table, or the template's own error."""
    assert "does not write calls" in (await played("{% for m in messages %}{{ m.content }}{% endfor %}")).tried
    assert "'nothing' is undefined" in (await played("{{ nothing.here }}")).renders
