"""Which pairs are trained on, and what their prompts keep."""

import math
from collections import Counter

import pytest

from fakes.preference_pairs import collection, pair, rng
from nat.data_models.finetuning import DPOItem, EpisodeItem, EpisodeItemRole, OpenAIMessage, Trajectory
from nat.errors import InvalidTrajectories, NoLearningSignal
from nat.plugins.customizer.dpo.pairs import (
    PairSkipCause,
    check_any_left,
    checked,
    distinct,
    drawn,
    pairs_of,
    prompt_of,
)

SYSTEM = OpenAIMessage(role="system", content="You play X.")
CALL = {"id": "c1", "type": "function", "function": {"name": "board", "arguments": "{}"}}


def item(*messages: OpenAIMessage) -> DPOItem:
    return DPOItem(prompt=list(messages), chosen_response="centre", rejected_response="edge")


def user(text: str) -> OpenAIMessage:
    return OpenAIMessage(role="user", content=text)


def test_ties_equal_responses_and_scores_that_are_no_numbers_are_counted():
    """Each pair that cannot teach is left out under its own cause; the others stay."""
    kept, causes = checked(
        collection(
            pair("a", scores=(1.0, 0.0)),
            pair("a", scores=(0.5, 0.5)),
            pair("b", chosen="same", rejected="same"),
            pair("b", scores=(math.nan, 0.0)),
            pair("b", scores=(math.inf, 0.0)),
            pair("b", reward=math.nan, scores=None),
        )
    )
    assert [len(group) for group in kept.trajectories] == [1]
    assert causes == Counter({PairSkipCause.NOT_FINITE: 3, PairSkipCause.TIE: 1, PairSkipCause.EQUAL: 1})


@pytest.mark.parametrize(
    ("trajectories", "error", "text"),
    [
        ([pair("a", scores=(1, 1)), pair("b", chosen="x", rejected="x")], NoLearningSignal, "1 x both responses have"),
        ([pair("a", scores=(math.nan, 0))], InvalidTrajectories, "1 x a score is not a finite number"),
        ([], InvalidTrajectories, "none of 0 trajectories has a preference pair"),
        (
            [Trajectory(episode=[EpisodeItem(role=EpisodeItemRole.USER, content="hi")], reward=1)],
            InvalidTrajectories,
            "none of 1 trajectories has a preference pair",
        ),
    ],
)
def test_nothing_left_is_a_named_error(trajectories, error, text):
    """If no pair is left, the error counts the causes and says what to change."""
    with pytest.raises(error, match=text) as raised:
        check_any_left(*checked(collection(*trajectories)))
    assert raised.value.hint


def test_the_last_turn_keeps_the_system_prompt():
    """Without the whole history, a prompt is the system prompt and the last turn, not the last message alone."""
    prompt = prompt_of(item(SYSTEM, user("first"), user("now")), whole_history=False)
    assert prompt == [{"role": "system", "content": "You play X."}, {"role": "user", "content": "now"}]


def test_the_last_turn_keeps_its_tool_calls():
    """A tool's result is sent with the call that asked for it, with names and ids."""
    calls = OpenAIMessage(role="assistant", content="", tool_calls=[CALL])
    result = OpenAIMessage(role="tool", content="empty", tool_call_id="c1", name="board")
    prompt = prompt_of(item(user("first"), user("now"), calls, result), whole_history=False)
    assert prompt == [
        {"role": "user", "content": "now"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "empty", "tool_call_id": "c1", "name": "board"},
    ]


def test_one_message_is_its_text():
    """A last turn of one user message is a string, as the toolkit's plug-in sends it; strings stay strings."""
    assert prompt_of(item(user("first"), user("now")), whole_history=False) == "now"
    text = DPOItem(prompt="now", chosen_response="a", rejected_response="b")
    assert prompt_of(text, whole_history=False) == "now"
    assert prompt_of(text, whole_history=True) == [{"role": "user", "content": "now"}]


def test_the_whole_history_has_all_messages():
    """`use_full_message_history` sends every message."""
    whole = prompt_of(item(SYSTEM, user("first"), user("now")), whole_history=True)
    assert [message["content"] for message in whole] == ["You play X.", "first", "now"]


def test_an_answer_that_the_workflow_recorded_with_the_prompt_is_no_part_of_it():
    """A prompt that ends with one of the responses would train the model to repeat its answer."""
    answered = item(user("now"), OpenAIMessage(role="assistant", content="centre"))
    assert prompt_of(answered, whole_history=False) == "now"
    earlier = item(user("now"), OpenAIMessage(role="assistant", content="else"))
    assert len(prompt_of(earlier, whole_history=False)) == 2


def test_equal_pairs_are_trained_once():
    """Deduplication compares prompt and both responses, over all groups."""
    kept, causes = distinct(collection(pair("a"), pair("b"), pair("b", prompt="other")))
    assert [found.prompt for found in pairs_of(kept, whole_history=False)] == ["move?", "other"]
    assert causes == Counter({PairSkipCause.DUPLICATE: 1})


def test_a_draw_depends_on_the_seed_alone():
    """`max_pairs` draws the same pairs again, keeps their groups, and another seed draws others."""
    every = collection(*(pair(f"e{number % 5}", prompt=str(number)) for number in range(40)))
    one, causes = drawn(every, 7, rng(0))
    assert drawn(every, 7, rng(0))[0] == one
    assert drawn(every, 7, rng(1))[0] != one
    assert sum(map(len, one.trajectories)) == 7
    assert causes == Counter({PairSkipCause.NOT_DRAWN: 33})
    assert drawn(every, None, rng(0)) == (every, Counter())
