"""A long conversation is kept once, and comes back whole."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from nat.data_models.llm_call import LLMCall
from nat.rollout.kept_calls import KeptCalls

TOOLS = [{"type": "function", "function": {"name": "look"}}]


def conversation(turns: int, *, anew: int) -> list[LLMCall]:
    """Calls that each continue the one before, but for those that begin with other tokens after so many."""
    random, messages, ids, calls = Random(0), [], [], []
    for turn in range(turns):
        text = [random.randrange(50_000) for _ in range(50)]
        messages = [*messages, {"role": "user", "content": str(text)}]
        ids = [*(ids if turn % anew else ids[::-1]), *text]
        answer = {"role": "assistant", "content": str(turn)}
        calls.append(LLMCall(model="m", messages=[], message=answer, prompt_token_ids=ids, token_ids=text[:3]))
        calls[-1].messages, calls[-1].tools = messages, TOOLS  # the same objects, as a recorded rollout has them
        messages, ids = [*messages, answer], [*ids, *text[:3]]
    return calls


def there_and_back(calls: list[LLMCall]) -> tuple[list[LLMCall], int]:
    kept = KeptCalls()
    content = to_json([kept.lighter(call) for call in calls]), to_json(kept.record)
    lighter = [LLMCall.model_validate(fields) for fields in from_json(content[0])]
    again = KeptCalls(**from_json(content[1]))
    for call in lighter:
        again.restore(call)
    return lighter, sum(map(len, content))


def test_a_conversation_comes_back_whole():
    """With its messages, tools and tokens, where it continues and where it begins anew."""
    calls = conversation(12, anew=5)
    assert there_and_back(calls)[0] == calls


def test_twice_the_turns_take_twice_the_bytes():
    """But for the numbers of messages; sent as they are, they would take four times as many."""
    short, long = (there_and_back(conversation(turns, anew=turns))[1] for turns in (20, 40))
    assert long < 2.2 * short


def test_calls_that_repeat_a_long_prompt_end(monkeypatch):
    """A few bytes for each of them would fill the memory."""
    monkeypatch.setattr("nat.rollout.kept_calls._MOST_TOKENS", 2000)
    call = {"messages": [], "tools": None, "prompt": (0, 900, [])}
    first = {**call, "prompt": (0, 0, [1] * 900)}
    kept = KeptCalls(calls=[first, call, call])
    light = [LLMCall(model="m", messages=[{"kept": number}], message={}) for number in range(3)]
    kept.restore(light[0])
    kept.restore(light[1])
    assert light[1].prompt_token_ids == [1] * 900
    with pytest.raises(ValueError, match="more than 2000 tokens"):
        kept.restore(light[2])


def test_no_call_comes_twice():
    """One list of messages would stand for those of many calls."""
    kept = KeptCalls(calls=[{"messages": [], "tools": None, "prompt": None}])
    kept.restore(LLMCall(model="m", messages=[{"kept": 0}], message={}))
    with pytest.raises(ValueError, match="call 1 has the number 0"):
        kept.restore(LLMCall(model="m", messages=[{"kept": 0}], message={}))


ids = st.lists(st.integers(0, 3), max_size=6)


@given(st.lists(st.tuples(st.none() | ids, st.none() | ids), max_size=6))
def test_any_tokens_come_back(given):
    """Prompts that share nothing, all, or a part with earlier ones; servers that report none."""
    calls = [
        LLMCall(model="m", messages=[], message={}, prompt_token_ids=prompt, token_ids=answer)
        for prompt, answer in given
    ]
    assert there_and_back(calls)[0] == calls
