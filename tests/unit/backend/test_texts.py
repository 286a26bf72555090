"""Conversations become the rows that the model would have made, had it written the answers."""

import pytest

from fakes.tiny_model import EOS, tiny_tokenizer
from nat.backend.texts import tokenized
from nat.backend.tokenizer import ChatTokenizer
from nat.wire.texts import Conversation

TOKENIZER = ChatTokenizer(tiny_tokenizer())
STOP = TOKENIZER.hf.convert_tokens_to_ids(EOS)
TALK = [
    {"role": "system", "content": "short"},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "the sum of it and 3?"},
    {"role": "assistant", "content": "7 then"},
]


def rows_of(conversation, *, tokenizer=TOKENIZER, longest=512):
    return tokenized(conversation, tokenizer, stops={STOP}, longest=longest)


def shown(row):
    """The text of a row, with what is learned from it in brackets."""
    text, inside = "", False
    targets = set(row.targets)
    for place, token in enumerate(row.token_ids):
        learned = place in targets
        text += ("[" if learned else "]") * (learned != inside) + TOKENIZER.token_text(token).text
        inside = learned
    return text + "]" * inside


def test_all_answers_of_a_conversation_are_in_one_row():
    """Each answer ends with its end of turn; what the template writes after it belongs to the next prompt."""
    [row] = rows_of(Conversation(messages=TALK, answers=[2, 4])).rows
    assert shown(row) == (
        "<|im_start|>system\nshort<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n[4<|im_end|>]\n"
        "<|im_start|>user\nthe sum of it and 3?<|im_end|>\n<|im_start|>assistant\n[7 then<|im_end|>]"
    )
    assert [span.logprobs for span in row.spans] == [None, None]


def test_a_template_that_rewrites_the_prompt_is_named():
    """Where a prompt is another text once it is answered, its tokens are not those that the answer followed."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    found = rows_of(Conversation(messages=TALK[1:3], answers=[1]), tokenizer=tokenizer)
    assert found.rows == []
    assert found.problem == (
        "the chat template writes message 1 differently once it is answered: the prompt has '12+2?' where the "
        "conversation has '22+2?4'"
    )


@pytest.mark.parametrize(
    ("answers", "seen"),
    [([0], "is not there"), ([5], "is not there"), ([1], "is of the role 'user'"), ([-1], "not there")],
)
def test_answers_are_messages_of_the_assistant(answers, seen):
    """An index of something else is an error that says what is there."""
    with pytest.raises(ValueError, match=seen):
        Conversation(messages=TALK, answers=answers)
