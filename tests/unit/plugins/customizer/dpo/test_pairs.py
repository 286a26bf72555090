"""Which pairs are trained on, and what their prompts keep."""

from collections import Counter

from fakes.preference_pairs import collection, pair, rng
from nat.data_models.finetuning import OpenAIMessage
from nat.plugins.customizer.dpo.pairs import distinct, drawn, pairs_of
from nat.preferences.skips import SkipCause

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
