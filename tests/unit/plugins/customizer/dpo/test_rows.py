"""The two files of a dataset."""

import json

import pytest

from fakes.preference_pairs import collection, game, pair, rng
from nat.errors import InvalidTrajectories
from nat.plugins.customizer.dpo.pairs import pairs_of
from nat.plugins.customizer.dpo.rows import demonstration_row, json_lines, platform_row, preference_row, split


def pairs(*trajectories):
    """The pairs with their examples."""
    return pairs_of(collection(*trajectories), whole_history=False)


def test_the_turns_of_an_example_stay_together():
    """A fifth of the examples is validated on, and no example has pairs on both sides."""
    parts = split(pairs(*game(examples=10)), rng(0))
    sides = [{each.prompt.partition(" ")[0] for each in side} for side in parts]
    assert [len(side) for side in sides] == [8, 2]
    assert not sides[0] & sides[1]
    assert sum(map(len, parts)) == 40


def test_the_split_is_drawn_by_the_seed():
    """The same seed gives the same split; it is not the order of the pairs."""
    every = pairs(*game(examples=10))
    held_out = [{each.prompt.partition(" ")[0] for each in split(every, rng(seed))[1]} for seed in (0, 0, 1, 2, 3)]
    assert held_out[0] == held_out[1]
    assert len({frozenset(side) for side in held_out}) > 2
    assert {"e8", "e9"} != held_out[0] or {"e8", "e9"} != held_out[2]


def test_a_pair_is_not_trained_and_validated():
    """Equal pairs of two examples, such as of an empty board, are not on both sides."""
    training, validation = split(
        pairs(*(pair(f"e{n}") for n in range(5)), *(pair(f"e{n}", prompt=str(n)) for n in range(5))), rng(0)
    )
    assert [each.prompt for each in validation if each.prompt == "move?"] == []
    assert len([each for each in training if each.prompt == "move?"]) == 4


@pytest.mark.parametrize(
    ("trajectories", "seen"),
    [(game(examples=1), "all are of one example"), ([pair("a"), pair("b")], "the examples have equal pairs")],
)
def test_what_cannot_be_split_is_an_error(trajectories, seen):
    """A validation on training pairs would say nothing, so there is none."""
    with pytest.raises(InvalidTrajectories, match=seen):
        split(pairs(*trajectories), rng(0))


def test_rows_have_the_keys_of_their_service():
    """One object per line, without a newline at the end."""
    ((_, one),) = pairs(pair("a"))
    assert preference_row(one) == {"prompt": "move?", "chosen_response": "good", "rejected_response": "bad"}
    assert platform_row(one) == {"prompt": "move?", "chosen": "good", "rejected": "bad"}
    assert json_lines([one, one], preference_row).decode().splitlines() == [json.dumps(preference_row(one))] * 2


def test_sft_rows_are_demonstrations():
    """`sft` trains on the chosen response: a completion of a text, or the last message; each once."""
    text = pair("a", rejected="bad"), pair("a", rejected="worse")
    assert (
        json_lines([one for _, one in pairs(*text)], demonstration_row) == b'{"prompt": "move?", "completion": "good"}'
    )
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    ((_, chat),) = pairs(pair("a", prompt=messages))
    assert demonstration_row(chat) == {"messages": [*messages, {"role": "assistant", "content": "good"}]}
