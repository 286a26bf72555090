"""Where two generations of one example part."""

import pytest

from fakes.training_rows import row_of
from nat.preferences.pairs import SkipCause
from nat.preferences.parting import first_parting, marked_messages, marked_tokens, parting


def row(*parts):
    """A row of prompts (lists) and answers (tuples), in turn."""
    tokens = [token for part in parts for token in part]
    return marked_tokens(row_of(tokens, [-0.5 if isinstance(part, tuple) else None for part in parts for _ in part]))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (row([1, 2], (3, 4)), row([1, 2], (5, 4)), 2),
        (row([1, 2], (3, 4)), row([1, 2], (3, 5)), 3),
        (row([1], (3,), [7], (8, 9)), row([1], (3,), [7], (8, 6)), 4),
        (row([1], (3,), [7], (8,)), row([1], (3,), [7], (9,)), 3),
        (row([1], (3, 4)), row([1], (3,)), 2),
        (row([1], (3, 4, 5)), row([1], (3,), [4], (5,)), 2),
    ],
    ids=["first token", "last token", "second answer", "its first token", "cut at the limit", "cut, then continued"],
)
def test_rows_part_at_an_answer(a, b, expected):
    """The first differing token is sampled in both rows, or one answer is the beginning of the other."""
    assert parting(a, b) == parting(b, a) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (row([1, 2], (3,)), row([1, 2], (3,))),
        (row([1, 2], (3,)), row([1, 9], (4,))),
        (row([1], (3,), [7], (8,)), row([1], (3,), [6], (9,))),
        (row([1], (3,), [7], (8,)), row([1], (3,))),
        (row([1], (3,)), row([1, 2], (3,))),
    ],
    ids=["equal", "other question", "other tool result", "one ends", "longer prompt"],
)
def test_rows_in_different_states_are_not_compared(a, b):
    """If a prompt differs first, or nothing does, no answer is preferred."""
    assert parting(a, b) is None
    assert parting(b, a) is None


def test_the_first_rows_that_part_are_found():
    """Conversations that saw different prompts are passed over."""
    a = [row([1], (2,), [3], (4,)), row([5], (6,))]
    b = [row([1], (2,), [9], (4,)), row([5], (7,))]
    assert first_parting(a, b) == (1, 1, 1)
    assert first_parting(a[:1], b[:1]) is SkipCause.DIFFERENT_PROMPTS
    assert first_parting(a, a) is SkipCause.EQUAL_RESPONSES


def test_what_both_have_is_not_compared():
    """Another answer to the prompt of a row that both have, such as to a retry, is compared with its like alone."""
    a, b = [row([1], (2,)), row([1], (3,))], [row([1], (2,)), row([1], (4,))]
    assert first_parting(a, b) == (1, 1, 1)
    assert first_parting(a, b[:1]) is SkipCause.DIFFERENT_PROMPTS


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def test_messages_part_at_an_answer():
    """The place of the first differing message, if both were sampled; ids of tool calls are random."""
    question = said("user", "2 + 2?")
    called = [
        [
            question,
            said("assistant", None, tool_calls=[{"id": name, "function": {"name": "add", "arguments": "{}"}}]),
            said("tool", "4", tool_call_id=name),
            said("assistant", answer),
        ]
        for name, answer in (("x", "four"), ("y", "five"))
    ]

    def part(a, sampled_a, b, sampled_b):
        return parting(marked_messages(a, sampled_a), marked_messages(b, sampled_b), whole=True)

    assert part(called[0], [1, 3], called[1], [1, 3]) == 3
    assert part(called[0], [1, 3], [question, said("assistant", "4")], [1]) == 1
    assert part(called[0], [1, 3], called[0], [1, 3]) is None
    other = [*called[1][:2], said("tool", "5", tool_call_id="y"), said("assistant", "five")]
    assert part(called[0], [1, 3], other, [1, 3]) is None
    assert part(called[0], [3], [question, said("assistant", "shown before")], []) is None
    assert part(called[0][:2], [1], [*called[1][:2], said("assistant", "and")], [1, 2]) is None
