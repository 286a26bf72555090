"""Strict prefix merging of calls into rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nat.wire.rows import CallTokens, merge
from nat.wire.training import TrainingRow

Tokens = st.lists(st.integers(0, 3), min_size=1, max_size=4)
"""Few ids, so that prefixes coincide often."""


def tokens(prompt, sampled, model="m"):
    return CallTokens(model=model, prompt=prompt, sampled=sampled, logprobs=[-float(i + 1) for i in sampled])


def test_a_continued_prompt_becomes_one_row():
    """Prompt tokens carry no logprob, sampled ones do, and a turn that goes on stays in the row."""
    (row,) = merge([tokens([1, 2], [3]), tokens([1, 2, 3, 4], [5, 6])])
    assert row.token_ids == [1, 2, 3, 4, 5, 6]
    assert row.logprobs == [None, None, -4.0, None, -6.0, -7.0]


def test_a_prompt_that_differs_in_one_token_begins_a_row():
    """Re-tokenised history is not what was sampled, so it is not trained on as if it were."""
    rows = merge([tokens([1, 2], [3]), tokens([1, 2, 9, 4], [5])])
    assert [row.token_ids for row in rows] == [[1, 2, 3], [1, 2, 9, 4, 5]]


def test_interleaved_conversations_find_their_rows():
    """Each call continues the row that it belongs to, not the latest one."""
    rows = merge([tokens([1], [2]), tokens([7], [8]), tokens([1, 2, 3], [4]), tokens([7, 8, 9], [10])])
    assert [row.token_ids for row in rows] == [[1, 2, 3, 4], [7, 8, 9, 10]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_call_continues_the_longest_row_that_it_can(order):
    """Two answers to one prompt, one the beginning of the other: what follows the longer one belongs to it."""
    answers = [tokens([1], [2]), tokens([1], [2, 3])]
    rows = merge([*(answers[number] for number in order), tokens([1, 2, 3, 4], [5])])
    assert sorted(row.token_ids for row in rows) == [[1, 2], [1, 2, 3, 4, 5]]


def test_a_prompt_may_be_any_sequence():
    """A tuple continues a row as a list does."""
    (row,) = merge([tokens((1, 2), (3,)), tokens((1, 2, 3, 4), (5,))])
    assert row.token_ids == [1, 2, 3, 4, 5]


def test_each_answer_keeps_its_return():
    """One entry per answer with its number of tokens; a row without values, or an answer without tokens, has none."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0], value=0.5),
        CallTokens("m", [1, 2, 3, 4], [], [], value=7.0),
        CallTokens("m", [1, 2, 3, 4, 5], [6], [-1.0], value=0.5),
    ]
    (row,) = merge(calls)
    assert [(entry.num_tokens, entry.value) for entry in row.returns or ()] == [(2, 0.5), (1, 0.5)]
    (plain,) = merge([tokens([1], [2])])
    assert plain.returns is None


def test_models_never_share_a_row():
    """The same ids of two models are not one policy's sequence."""
    assert len(merge([tokens([1], [2], "a"), tokens([1, 2], [3], "b")])) == 2


def test_a_call_without_sampled_tokens_makes_no_row():
    """An empty answer has nothing to train on."""
    assert merge([tokens([1, 2], [])]) == []


@given(st.lists(st.tuples(Tokens, Tokens), max_size=6))
def test_every_sampled_token_is_trained_on_exactly_once(calls):
    """Merging loses no sampled token and invents none, however the prompts overlap."""
    rows = merge([tokens(prompt, sampled) for prompt, sampled in calls])
    assert sum(row.num_sampled for row in rows) == sum(len(sampled) for _, sampled in calls)


@given(st.lists(st.tuples(Tokens, Tokens), min_size=1, max_size=5))
def test_an_unbroken_conversation_is_one_row(turns):
    """If each prompt begins with all that was before it, there is one row with all the tokens in order."""
    history, calls = [], []
    for new, sampled in turns:
        history = history + new
        calls.append(tokens(history, sampled))
        history = history + sampled
    (row,) = merge(calls)
    assert row.token_ids == history


def test_each_answer_keeps_its_temperature():
    """A row may merge calls of several temperatures; neighbours of one temperature share an entry."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0]),
        CallTokens("m", [1, 2, 3, 4], [5], [-1.0], temperature=0.5),
        CallTokens("m", [1, 2, 3, 4, 5], [6, 7], [-1.0, -1.0], temperature=0.5),
    ]
    (row,) = merge(calls)
    assert [(t.num_tokens, t.temperature) for t in row.temperatures or ()] == [(2, 1.0), (3, 0.5)]
    (plain,) = merge(calls[:1])
    assert plain.temperatures is None


def test_temperatures_of_other_tokens_are_refused():
    """As many as carry a log probability, and within what can be computed."""
    for told in ([(1, 0.5)], [(3, 0.5)], [(2, 0.0)], [(2, 1e-4)]):
        with pytest.raises(ValidationError):
            TrainingRow(
                token_ids=[1, 2, 3],
                logprobs=[None, -1.0, -1.0],
                temperatures=[{"num_tokens": n, "temperature": t} for n, t in told],
            )
