"""Which pairs are trained on, what their prompts keep, and the two files of a dataset."""

import json
from collections import Counter

import pytest

from fakes.preference_pairs import collection, game, pair, rng
from nat.data_models.finetuning import OpenAIMessage
from nat.errors import InvalidTrajectories
from nat.plugins.customizer.dpo.rows import distinct, drawn, json_lines, pairs_of, split
from nat.preferences.pairs import SkipCause

SYSTEM = OpenAIMessage(role="system", content="You play X.")
CALL = {"id": "c1", "type": "function", "function": {"name": "board", "arguments": "{}"}}


def sent(prompt, *, whole_history=False):
    """The prompt of a row, as JSON."""
    one = pair("a", prompt=prompt, chosen="centre", rejected="edge")
    ((_, item),) = pairs_of(collection(one), whole_history=whole_history)
    return item.model_dump(exclude_none=True)["prompt"]


def user(text: str) -> OpenAIMessage:
    return OpenAIMessage(role="user", content=text)


def test_the_last_turn_keeps_the_system_prompt():
    """Without the whole history, a prompt is the system prompt and the last turn, not the last message alone."""
    prompt = sent([SYSTEM, user("first"), user("now")])
    assert prompt == [{"role": "system", "content": "You play X."}, {"role": "user", "content": "now"}]


def test_the_last_turn_keeps_its_tool_calls():
    """A tool's result is sent with the call that asked for it, with names and ids."""
    calls = OpenAIMessage(role="assistant", content="", tool_calls=[CALL])
    result = OpenAIMessage(role="tool", content="empty", tool_call_id="c1", name="board")
    prompt = sent([user("first"), user("now"), calls, result])
    assert prompt == [
        {"role": "user", "content": "now"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "empty", "tool_call_id": "c1", "name": "board"},
    ]


def test_one_message_is_its_text():
    """A last turn of one user message is a string, as the toolkit's plug-in sends it; strings stay strings."""
    assert sent([user("first"), user("now")]) == "now"
    assert sent("now") == "now"
    assert sent("now", whole_history=True) == [{"role": "user", "content": "now"}]


def test_the_whole_history_has_all_messages():
    """`use_full_message_history` sends every message."""
    whole = sent([SYSTEM, user("first"), user("now")], whole_history=True)
    assert [message["content"] for message in whole] == ["You play X.", "first", "now"]


def test_equal_pairs_are_trained_once():
    """Deduplication compares prompt and both responses, over all groups."""
    kept, causes = distinct(collection(pair("a"), pair("b"), pair("b", prompt="other")))
    assert [found.prompt for _, found in pairs_of(kept, whole_history=False)] == ["move?", "other"]
    assert causes == Counter({SkipCause.DUPLICATE: 1})


def test_a_draw_depends_on_the_seed_alone():
    """`max_pairs` draws the same pairs again, keeps their groups, and another seed draws others."""
    every = collection(*(pair(f"e{number % 5}", prompt=str(number)) for number in range(40)))
    one, causes = drawn(every, 7, rng(0))
    assert drawn(every, 7, rng(0))[0] == one
    assert drawn(every, 7, rng(1))[0] != one
    assert sum(map(len, one.trajectories)) == 7
    assert causes == Counter({SkipCause.NOT_DRAWN: 33})
    assert drawn(every, None, rng(0)) == (every, Counter())


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


def test_rows_have_the_keys_of_the_service():
    """One object per line, without a newline at the end."""
    ((_, one),) = pairs(pair("a"))
    row = {"prompt": "move?", "chosen_response": "good", "rejected_response": "bad"}
    assert json_lines([one, one], "dpo").decode().splitlines() == [json.dumps(row)] * 2


def test_sft_rows_are_demonstrations():
    """`sft` trains on the chosen response: a completion of a text, or the last message; each once."""
    text = pair("a", rejected="bad"), pair("a", rejected="worse")
    assert json_lines([one for _, one in pairs(*text)], "sft") == b'{"prompt": "move?", "completion": "good"}'
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    ((_, chat),) = pairs(pair("a", prompt=messages))
    wanted = {"messages": [*messages, {"role": "assistant", "content": "good"}]}
    assert json.loads(json_lines([chat], "sft")) == wanted
