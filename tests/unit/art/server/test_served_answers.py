"""The memory of prompts by served answers."""

import json

from hypothesis import given
from hypothesis import strategies as st

from nat.art.server.served_answers import ENTRY_BYTES, MAX_PROMPTS, ServedAnswers

ids = st.lists(st.integers(0, 300_000), min_size=1, max_size=5)
logprobs = st.lists(st.floats(-50, 0), min_size=1, max_size=5)


def lists(prompts):
    return [list(prompt) for prompt in prompts]


@given(ids, ids, logprobs)
def test_the_prompt_of_an_answer_survives_json(prompt, tokens, values):
    """An answer parsed from JSON finds its prompt; any other answer finds nothing."""
    served = ServedAnswers()
    served.remember(prompt, tokens, values)
    assert lists(served.prompts_of(tokens, json.loads(json.dumps(values)))) == [prompt]
    assert served.prompts_of([*tokens, 1], values) == []
    assert served.prompts_of(tokens, [*values[:-1], values[-1] - 1e-3]) == []


def test_a_sure_answer_may_have_several_prompts():
    """Answers with log probabilities of zero are not unique, so all their prompts are returned, each once."""
    served = ServedAnswers()
    for prompt in ([1, 2, 3], [1, 2, 4], [1, 2, 3]):
        served.remember(prompt, [7], [0.0])
    assert lists(served.prompts_of([7], [0.0])) == [[1, 2, 3], [1, 2, 4]]


def test_memory_is_bounded():
    """The least recently used answers are dropped; the same answer to the same prompt is stored once."""
    served = ServedAnswers(max_bytes=3 * (ENTRY_BYTES + 8))
    for _ in range(3):
        served.remember([1, 1], [1], [-1.0])
    served.remember([2, 2], [2], [-1.0])
    served.remember([3, 3], [3], [-1.0])
    assert served.num_bytes == 3 * (ENTRY_BYTES + 8)
    assert served.prompts_of([1], [-1.0])
    served.remember([4, 4], [4], [-1.0])
    assert not served.prompts_of([2], [-1.0])
    assert served.prompts_of([1], [-1.0])
    served.remember([5] * 1000, [5], [-1.0])
    assert served.num_bytes == 0


def test_a_common_answer_does_not_fill_the_memory():
    """A frequent answer keeps only its latest prompts."""
    served = ServedAnswers()
    for prompt in range(MAX_PROMPTS + 5):
        served.remember([prompt], [7], [0.0])
    assert lists(served.prompts_of([7], [0.0])) == [[prompt] for prompt in range(5, MAX_PROMPTS + 5)]
    assert served.num_bytes == MAX_PROMPTS * (ENTRY_BYTES + 4)
