"""Conversations that a script plays through the server."""

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from fakes.chat_families import FAMILIES
from fakes.tiny_model import tiny_tokenizer
from nat.backend.server.rehearsal import rehearse
from nat.backend.tokenizer import ChatTokenizer
from nat.wire.openai_responses import BrokenPrefix

QWEN = FAMILIES["qwen3"].tokenizer
NO_CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NINE = (
    "{% for m in messages %}{% if m.tool_call_id and m.tool_call_id|length != 9 %}"
    "{{ raise_exception('ids have nine characters') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NUMBERED = NO_CALLS.replace(
    "{{ m.content }}", "{% if m.role == 'user' %}{{ messages|length }} {% endif %}{{ m.content }}"
)


def with_template(template: str) -> ChatTokenizer:
    hf = tiny_tokenizer()
    hf.chat_template = template
    return ChatTokenizer(hf)


@pytest.mark.parametrize("family", ["qwen2.5", "llama3"])
def test_a_template_that_keeps_its_history_gives_one_row(family: str):
    """Each prompt begins with the sampled tokens of the turn before, letter by letter as they were."""
    for talk in rehearse(FAMILIES[family].tokenizer()):
        assert (talk.rows, talk.drift, talk.problem) == (1, (), None)


def test_a_tool_loop_of_a_thinking_model_is_exact():
    """Thinking is kept up to the next question, which drops it: a second row."""
    loop, second = rehearse(QWEN())
    assert (loop.answers, loop.rows, loop.problem) == (3, 1, None)
    assert second.answers == 4
    assert second.rows == 1 + len(second.drift)
    assert set(second.drift) <= {BrokenPrefix.TEMPLATE_REWRITES}


def test_a_template_without_calls_is_asked_questions_alone():
    """No tools are offered to it."""
    first, second = rehearse(with_template(NO_CALLS))
    assert (first.title, first.answers, first.rows) == ("a question", 1, 1)
    assert (second.answers, second.rows) == (2, 1)


def test_a_script_that_the_tokenizer_cannot_write_is_not_played():
    """A small model's tokenizer may have the words of its task alone; that is no fault of its format."""
    words = Tokenizer(models.WordLevel({"?": 0, "blue": 1}, unk_token="?"))
    hf = PreTrainedTokenizerFast(tokenizer_object=words, chat_template=NO_CALLS)
    for talk in rehearse(ChatTokenizer(hf)):
        assert (talk.rows, talk.problem) == (None, None)
        assert "no tokens for the words" in talk.untried


def test_a_template_that_rewrites_its_history_gives_a_row_for_each_answer():
    """Here every question counts the messages, so no prompt continues an earlier one."""
    first, second = rehearse(with_template(NUMBERED))
    assert first.rows == 1
    assert (second.rows, second.drift) == (2, (BrokenPrefix.TEMPLATE_REWRITES,))


def test_ids_of_calls_have_the_form_that_a_template_wants():
    """Mistral's templates raise for any but nine letters and digits."""
    for talk in rehearse(with_template(NINE)):
        assert (talk.rows, talk.problem) == (1, None)


def test_what_the_server_refuses_is_the_problem():
    """A template that takes no results of tools ends the conversation with its own words."""
    refusing = NINE.replace("m.tool_call_id|length != 9", "true").replace("ids have nine characters", "no tools here")
    loop, _ = rehearse(with_template(refusing))
    assert loop.rows is None
    assert "no tools here" in loop.problem
