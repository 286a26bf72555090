"""Conversations become the rows that the model would have made, had it written the answers."""

from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from fakes.tiny_model import EOS, tiny_tokenizer
from nat.backend.model_loader import eos_token_ids
from nat.backend.texts import tokenized
from nat.backend.tokenizer import ChatOptions, ChatTokenizer
from nat.wire.training import Conversation

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


def shown(row, tokenizer=TOKENIZER):
    """The text of a row, with what is learned from it in brackets."""
    text, inside = "", False
    targets = set(row.targets)
    for place, token in enumerate(row.token_ids):
        learned = place in targets
        text += ("[" if learned else "]") * (learned != inside) + tokenizer.token_text(token).text
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


SPEAKERS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "[{{ c.function | tojson }}]{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ["<|user|>", "<|tool|>", "<|assistant|>"]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2}}}]}
TOOL_TALK = [TALK[1], CALL, {"role": "tool", "content": "4"}, *TALK[2:]]
CHATML_TALK = (
    "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n[{}<|im_end|>]\n<|im_start|>tool\n4<|im_end|>\n"
    "<|im_start|>assistant\n[4<|im_end|>]\n<|im_start|>user\nthe sum of it and 3?<|im_end|>\n<|im_start|>assistant\n"
    "[7 then<|im_end|>]"
)
MIXED = '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'


@pytest.mark.parametrize(
    ("template", "known", "found", "wanted"),
    [
        (
            SPEAKERS,
            ["</s>", "<|user|>", "<|tool|>"],
            [],
            '<|user|>2+2?<|assistant|>[[{"name": "add", "arguments": {"a": 2}}]<|tool|>]4<|assistant|>[4<|user|>]'
            "the sum of it and 3?<|assistant|>[7 then<|user|>]",
        ),
        (SPEAKERS, ["</s>"], ["<|user|>", "<|tool|>"], ""),
        (None, ["</s>"], [EOS], CHATML_TALK.format(MIXED)),
        (None, [EOS], [], CHATML_TALK.format(MIXED)),
    ],
    ids=["next speaker", "next speaker, no end of the model", "a base model's", "the model's own"],
)
def test_the_end_of_a_turn_is_learned(template, known, found, wanted):
    """Wherever the template has it: in the answer's turn, or as the next speaker's mark; sampling stops there, too."""
    hf = tiny_tokenizer()
    hf.add_special_tokens({"eos_token": known[0], "additional_special_tokens": [EOS, "<|im_start|>", *MARKS]})
    hf.chat_template = template or hf.chat_template
    tokenizer, ids = ChatTokenizer(hf), hf.convert_tokens_to_ids
    model = SimpleNamespace(generation_config=GenerationConfig(eos_token_id=[ids(mark) for mark in known]))
    stops = eos_token_ids(model, tokenizer)
    assert stops == {ids(mark) for mark in (*known, *found)}
    assert set(model.generation_config.eos_token_id) == stops, "an export stops there in other servers"
    [row] = tokenized(Conversation(messages=TOOL_TALK, answers=[1, 3, 5]), tokenizer, stops=stops, longest=512).rows
    assert shown(row, tokenizer) == wanted or not wanted


def test_an_answer_without_an_end_is_refused():
    """A model that learns it would never stop; the message says how to mend the template."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    found = rows_of(Conversation(messages=TALK[1:3], answers=[1]), tokenizer=tokenizer)
    assert found.rows == []
    assert "no token at which sampling stops" in found.problem
    assert "{{ eos_token }}" in found.problem


def test_control_tokens_in_the_texts_of_a_file_are_warned_of_or_stay_text(caplog):
    """A row learns the same text either way; as text, only the template and the answer begin and end turns."""
    talk = [{"role": "user", "content": f"page: x{EOS}"}, {"role": "assistant", "content": "4"}]
    ends = {}
    for stays in (False, True):
        tokenizer = ChatTokenizer(tiny_tokenizer(), options=ChatOptions(sanitize_control_tokens=stays))
        for _ in range(2):
            [row] = rows_of(Conversation(messages=talk, answers=[1]), tokenizer=tokenizer).rows
        ends[stays] = row.token_ids.count(STOP)
        assert tokenizer.decode_all(row.token_ids).startswith(f"<|im_start|>user\npage: x{EOS}{EOS}\n")
    assert ends == {False: 3, True: 2}
    assert [(EOS in each, "sanitize_control_tokens" in each) for each in caplog.messages] == [(True, True)]


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
