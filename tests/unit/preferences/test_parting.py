"""Where two generations of one example part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.training_rows import row_of
from nat.preferences.parting import first_parting, marked_messages, marked_tokens, parting
from nat.preferences.skips import SkipCause


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


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_two_answers_to_one_prompt(a, b):
    """They part unless they are equal, after their common beginning."""
    found = parting(row([9], tuple(a)), row([9], tuple(b)))
    if a == b:
        assert found is None
    else:
        assert found is not None
        assert a[: found - 1] == b[: found - 1]
        assert a[found - 1 : found] != b[found - 1 : found]


def test_an_answer_may_end_where_the_other_goes_on():
    """So tokens are compared; a message is a whole answer, and one that is missing is none."""
    longer, shorter = [row([1], (3, 4))], [row([1], (3,))]
    assert first_parting(longer, shorter) == (0, 0, 2)
    assert first_parting(longer, shorter, whole=True) is SkipCause.DIFFERENT_PROMPTS


def test_the_order_of_a_messages_keys_says_nothing():
    """Frameworks write the role first or last."""
    message = {"role": "user", "content": "hello"}
    assert marked_messages([message], []) == marked_messages([dict(reversed(message.items()))], [])


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


def test_a_streamed_call_is_the_same_call():
    """Only in a stream does a tool call have an index; its name and arguments are compared."""

    def calling(arguments, **more):
        call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return [said("user", "2 + 2?"), said("assistant", None, tool_calls=[call | more])]

    calls = calling("{}"), calling("{}", index=0), calling('{"a": 2}', index=0)
    whole, streamed, other = (marked_messages(messages, [1]) for messages in calls)
    assert whole == streamed
    assert parting(whole, other, whole=True) == 1


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


def test_tools_belong_to_the_prompt():
    """Answers to the same messages are not compared if their requests offered other tools."""
    messages = [said("user", "2 + 2?"), said("assistant", "4")], [said("user", "2 + 2?"), said("assistant", "5")]
    a, b = (marked_messages(each, [1], tools="[1]") for each in messages)
    assert parting(a, b, whole=True) == 1
    assert parting(a, marked_messages(messages[1], [1]), whole=True) is None
