"""The first token that differs, and what its log probabilities tell of the cause."""

import pytest

from nat.plugins.local.replayed_rollout import _cause, _compared
from nat.wire.training import Span, TrainingRow


def row(*ids, logprobs=(-1.0, -2.0), start=2):
    return TrainingRow(token_ids=ids, spans=[Span(start=start, stop=start + len(logprobs), logprobs=logprobs)])


RECORDED = row(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("replayed", "place", "cause"),
    [
        ([row(1, 2, 3, 4)], (None, None), None),
        ([row(1, 9, 3, 4)], (0, 1), "another prompt, of the same messages"),
        ([row(1, 2, 9, 4)], (0, 2), "not known"),
        ([row(1, 2, 3, 9, logprobs=(-1.0, -2.00001))], (0, 3), "a near tie"),
        ([row(1, 2, 3, 9, logprobs=(-1.0, -5.0))], (0, 3), "another random number"),
        ([row(1, 2, 3, 9, logprobs=(-1.000001, -5.0))], (0, 3), "rounding"),
        ([row(1, 2, 3, 9, logprobs=(-1.01, -5.0))], (0, 3), "other weights, or rounding in bfloat16"),
        ([row(1, 2, 3, 4, logprobs=(-3.0, -2.0))], (None, None), "other weights"),
        ([row(1, 2, 3, logprobs=(-1.0,))], (0, 3), "another random number"),
        ([], (0, 0), "another prompt"),
    ],
)
def test_the_first_difference_and_its_cause(replayed, place, cause):
    found = _compared([RECORDED], replayed)
    assert (found.get("row"), found.get("token")) == place
    said = _cause({"messages": None} | found)
    assert said is None if cause is None else said.startswith(cause)


def test_equal_tokens_before_it_are_measured():
    found = _compared([RECORDED, RECORDED], [row(1, 2, 3, 4, logprobs=(-1.25, -2.0)), row(1, 2, 3, 7)])
    assert (found["row"], found["token"], found["equal_tokens"], found["largest_gap"]) == (1, 3, 3, 0.25)
    assert (found["recorded"].token_id, found["replayed"].token_id) == (4, 7)
