"""Repeated parts of a rollout's requests are stored once."""

import json

from hypothesis import given
from hypothesis import strategies as st

from nat.capture.interning import Interner

messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": st.sampled_from(["yes", "no", None])},
        optional={"tool_calls": st.lists(st.integers(0, 2), max_size=2)},
    )
)


@given(st.lists(messages, max_size=4))
def test_interned_messages_are_equal(conversations):
    """Sharing objects changes no message, no order and no repetition."""
    interner = Interner()
    assert [interner.messages(list(c)) for c in conversations] == conversations


def test_a_growing_conversation_keeps_each_message_once():
    """T turns store T messages instead of T²/2."""
    interner, history, kept = Interner(), [], set()
    for turn in range(20):
        history.append({"role": "user", "content": f"turn {turn}"})
        kept |= {id(message) for message in interner.messages(json.loads(json.dumps(history)))}
    assert len(kept) == 20


@given(st.lists(st.integers(1000, 1009), max_size=6), st.lists(st.integers(1000, 1009), max_size=6))
def test_a_continued_prompt_keeps_its_ids(first, more):
    """A prompt has its own ids, whether or not it begins with an earlier one."""
    interner = Interner()
    interner.sampled(first, [7])
    assert interner.prompt_ids(list(more)) == more
    assert interner.prompt_ids([*first, 7, *more]) == [*first, 7, *more]
