"""Calls are merged into rows by strict prefixes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nat.wire.rows import CallTokens, merge
from nat.wire.training import TrainingRow

Tokens = st.lists(st.integers(0, 3), min_size=1, max_size=4)
"""Few ids, so that prefixes often coincide."""


def tokens(prompt, sampled, model="m"):
    return CallTokens(model=model, prompt=prompt, sampled=sampled, logprobs=[-float(i + 1) for i in sampled])


def test_a_continued_prompt_becomes_one_row():
    """Prompt tokens have no logprob, sampled tokens have one, and a continued turn stays in the row."""
    (row,) = merge([tokens([1, 2], [3]), tokens([1, 2, 3, 4], [5, 6])])
    assert row.token_ids == [1, 2, 3, 4, 5, 6]
    assert row.logprobs == [None, None, -4.0, None, -6.0, -7.0]


def test_a_prompt_that_differs_in_one_token_begins_a_row():
    """A re-tokenised history was not sampled, so it begins a new row."""
    rows = merge([tokens([1, 2], [3]), tokens([1, 2, 9, 4], [5])])
    assert [row.token_ids for row in rows] == [[1, 2, 3], [1, 2, 9, 4, 5]]


def test_interleaved_conversations_continue_their_rows():
    """Each call continues its own row, not the latest."""
    rows = merge([tokens([1], [2]), tokens([7], [8]), tokens([1, 2, 3], [4]), tokens([7, 8, 9], [10])])
    assert [row.token_ids for row in rows] == [[1, 2, 3, 4], [7, 8, 9, 10]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_call_continues_the_longest_row_that_it_can(order):
    """If one answer is the start of another answer to the same prompt, the next call continues the longer one."""
    answers = [tokens([1], [2]), tokens([1], [2, 3])]
    rows = merge([*(answers[number] for number in order), tokens([1, 2, 3, 4], [5])])
    assert sorted(row.token_ids for row in rows) == [[1, 2], [1, 2, 3, 4, 5]]


def test_a_prompt_may_be_any_sequence():
    """A tuple continues a row as a list does."""
    (row,) = merge([tokens((1, 2), (3,)), tokens((1, 2, 3, 4), (5,))])
    assert row.token_ids == [1, 2, 3, 4, 5]


def test_each_answer_keeps_its_return():
    """Each answer has an entry with its number of tokens; rows without values and empty answers have none."""
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
    """The same ids of two models are not one sequence."""
    assert len(merge([tokens([1], [2], "a"), tokens([1, 2], [3], "b")])) == 2


def test_a_call_without_sampled_tokens_makes_no_row():
    """An empty answer has nothing to train on."""
    assert merge([tokens([1, 2], [])]) == []


@given(st.lists(st.tuples(Tokens, Tokens), max_size=6))
def test_every_sampled_token_is_trained_on_exactly_once(calls):
    """Merging neither loses nor adds sampled tokens, however prompts overlap."""
    rows = merge([tokens(prompt, sampled) for prompt, sampled in calls])
    assert sum(row.num_sampled for row in rows) == sum(len(sampled) for _, sampled in calls)


@given(st.lists(st.tuples(Tokens, Tokens), min_size=1, max_size=5))
def test_an_unbroken_conversation_is_one_row(turns):
    """If each prompt begins with everything before it, one row has all tokens in order."""
    history, calls = [], []
    for new, sampled in turns:
        history = history + new
        calls.append(tokens(history, sampled))
        history = history + sampled
    (row,) = merge(calls)
    assert row.token_ids == history


def test_each_answer_keeps_its_temperature():
    """A row may have several temperatures; neighbouring answers of one temperature share an entry."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0]),
        CallTokens("m", [1, 2, 3, 4], [5], [-1.0], temperature=0.5),
        CallTokens("m", [1, 2, 3, 4, 5], [6, 7], [-1.0, -1.0], temperature=0.5),
    ]
    (row,) = merge(calls)
    assert [(t.num_tokens, t.temperature) for t in row.temperatures or ()] == [(2, 1.0), (3, 0.5)]
    (plain,) = merge(calls[:1])
    assert plain.temperatures is None


def test_temperatures_must_cover_the_sampled_tokens():
    """There is one per token with a log probability, within the supported range."""
    for told in ([(1, 0.5)], [(3, 0.5)], [(2, 0.0)], [(2, 1e-4)]):
        with pytest.raises(ValidationError):
            TrainingRow(
                token_ids=[1, 2, 3],
                logprobs=[None, -1.0, -1.0],
                temperatures=[{"num_tokens": n, "temperature": t} for n, t in told],
            )


def test_each_answer_keeps_the_weights_that_sampled_it():
    """Answers of the same weights share an entry; a row whose answers name none has no entries."""
    calls = [
        CallTokens("m", [1], [2, 3], [-1.0, -1.0], policy_version="m@0"),
        CallTokens("m", [1, 2, 3], [4], [-1.0], policy_version="m@0"),
        CallTokens("m", [1, 2, 3, 4, 5], [], [], policy_version="m@1"),
        CallTokens("m", [1, 2, 3, 4, 5], [6], [-1.0], policy_version="m@1"),
    ]
    (row,) = merge(calls)
    assert [(e.num_tokens, e.policy_version) for e in row.policy_versions or ()] == [(3, "m@0"), (1, "m@1")]
    (unknown,) = merge([tokens([1], [2])])
    assert unknown.policy_versions is None


def test_an_answer_without_a_version_keeps_the_versions_of_others():
    """A row in which one answer names no weights still says which weights sampled the other."""
    (row,) = merge(
        [CallTokens("m", [1], [2], [-1.0], policy_version="m@0"), CallTokens("m", [1, 2, 3], [4, 5], [-1.0, -1.0])]
    )
    assert [(e.num_tokens, e.policy_version) for e in row.policy_versions or ()] == [(1, "m@0"), (2, None)]
