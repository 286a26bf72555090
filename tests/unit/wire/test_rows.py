"""Calls are merged into rows by strict prefixes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fakes.training_rows import logprobs_of
from nat.wire.rows import CallTokens, merge
from nat.wire.training import Span

Tokens = st.lists(st.integers(0, 3), min_size=1, max_size=4)
"""Few ids, so that prefixes often coincide."""


def tokens(prompt, sampled, model="m"):
    return CallTokens(model=model, prompt=prompt, sampled=sampled, logprobs=[-float(i + 1) for i in sampled])


def test_a_continued_prompt_becomes_one_row():
    """Prompt tokens have no logprob, sampled tokens have one, and a continued turn stays in the row."""
    (row,) = merge([tokens([1, 2], [3]), tokens([1, 2, 3, 4], [5, 6])])
    assert row.token_ids == [1, 2, 3, 4, 5, 6]
    assert logprobs_of(row) == [None, None, -4.0, None, -6.0, -7.0]


def test_a_prompt_that_differs_in_one_token_begins_a_row():
    """A re-tokenised history was not sampled, so it begins a new row."""
    rows = merge([tokens([1, 2], [3]), tokens([1, 2, 9, 4], [5])])
    assert [row.token_ids for row in rows] == [[1, 2, 3], [1, 2, 9, 4, 5]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_call_continues_the_longest_row_that_it_can(order):
    """If one answer is the start of another answer to the same prompt, the next call continues the longer one."""
    answers = [tokens([1], [2]), tokens([1], [2, 3])]
    rows = merge([*(answers[number] for number in order), tokens([1, 2, 3, 4], [5])])
    assert sorted(row.token_ids for row in rows) == [[1, 2], [1, 2, 3, 4, 5]]


def test_each_answer_keeps_its_return():
    """Each answer is a span; an empty one has none."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0], value=0.5),
        CallTokens("m", [1, 2, 3, 4], [], [], value=7.0),
        CallTokens("m", [1, 2, 3, 4, 5], [6], [-1.0], value=0.5),
    ]
    (row,) = merge(calls)
    assert [(span.size, span.value) for span in row.spans] == [(2, 0.5), (1, 0.5)]
    (plain,) = merge([tokens([1], [2])])
    assert plain.spans[0].value is None


@given(st.lists(st.tuples(Tokens, Tokens), max_size=6))
def test_every_sampled_token_is_trained_on_exactly_once(calls):
    """Merging neither loses nor adds sampled tokens, however prompts overlap."""
    rows = merge([tokens(prompt, sampled) for prompt, sampled in calls])
    assert sum(row.num_sampled for row in rows) == sum(len(sampled) for _, sampled in calls)


def test_each_answer_keeps_its_temperature():
    """A row may have several temperatures; answers without a token between them stay two."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0]),
        CallTokens("m", [1, 2, 3, 4], [5], [-1.0], temperature=0.5),
        CallTokens("m", [1, 2, 3, 4, 5], [6, 7], [-1.0, -1.0], temperature=0.5),
    ]
    (row,) = merge(calls)
    assert [(span.start, span.stop, span.temperature) for span in row.spans] == [(1, 3, 1.0), (4, 5, 0.5), (5, 7, 0.5)]


def test_each_token_of_a_span_has_a_log_probability():
    """More or fewer are of another answer."""
    for logprobs in ([], [-1.0], [-1.0] * 3):
        with pytest.raises(ValidationError, match=f"{len(logprobs)} logprobs for the 2 tokens of a span"):
            Span(start=1, stop=3, logprobs=logprobs)


def test_each_answer_keeps_the_weights_that_sampled_it():
    """Each span names its own; an answer that names none has none."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0], policy_version="m@0"),
        CallTokens("m", [1, 2, 3], [4], [-1.0], policy_version="m@0"),
        CallTokens("m", [1, 2, 3, 4, 5], [], [], policy_version="m@1"),
        CallTokens("m", [1, 2, 3, 4, 5], [6], [-1.0], policy_version="m@1"),
    ]
    (row,) = merge(calls)
    assert [(span.size, span.policy_version) for span in row.spans] == [(2, "m@0"), (1, "m@0"), (1, "m@1")]
    (unknown,) = merge([tokens([1], [2])])
    assert unknown.spans[0].policy_version is None
