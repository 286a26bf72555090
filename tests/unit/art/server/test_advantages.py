"""ART's advantages and weights match the numbers of ART 0.5.18 and its invariances."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.art.server.advantages import WeightedAdvantage, balanced, group_advantages, weighted

rewards = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=6)
batches = st.lists(
    st.tuples(st.floats(-3, 3).filter(lambda a: abs(a) > 1e-3), st.integers(1, 50)), min_size=1, max_size=8
)


def test_golden_advantages():
    """Rewards 1, 0 and 1/2: the last is the mean and drops out, the others are ±0.5 / (0.408248 + 1e-6)."""
    better, worse, same = group_advantages([1.0, 0.0, 0.5], scale=True)
    assert (better, worse, same) == (pytest.approx(1.224742, abs=1e-6), pytest.approx(-1.224742, abs=1e-6), None)
    assert group_advantages([1.0, 0.0, 0.5], scale=False) == [0.5, -0.5, None]


@pytest.mark.parametrize("scale", [True, False])
def test_golden_shares(scale):
    """Trajectories of 5 and 4 trained tokens weigh 0.9 and 1.125 per token, with advantages of ±1 either way."""
    better, worse, _ = group_advantages([1.0, 0.0, 0.5], scale=scale)
    assert weighted([better, worse], [5, 4]) == [
        WeightedAdvantage(pytest.approx(1.0), pytest.approx(0.9)),
        WeightedAdvantage(pytest.approx(-1.0), pytest.approx(1.125)),
    ]


@pytest.mark.parametrize("equal", [[0.1] * 3, [0.7] * 3, [0.3, 0.1 + 0.2], [0.5], [-1e9] * 7, [0.0, 0.0], []])
@pytest.mark.parametrize("scale", [True, False])
def test_equal_rewards_are_no_signal(equal, scale):
    """Differences to the mean within rounding, and single trajectories, carry no signal."""
    assert group_advantages(equal, scale=scale) == [None] * len(equal)


@given(batches)
def test_means_over_trained_tokens_are_one(batch):
    """The mean weight is 1, the mean of |advantage| · weight is 1, and every trajectory weighs the same."""
    advantages, tokens = zip(*batch, strict=True)
    found = weighted(advantages, tokens)
    total = sum(tokens)
    assert sum(s.weight * n for s, n in zip(found, tokens, strict=True)) / total == pytest.approx(1)
    assert sum(abs(s.advantage) * s.weight * n for s, n in zip(found, tokens, strict=True)) / total == pytest.approx(1)
    assert [s.weight * n for s, n in zip(found, tokens, strict=True)] == pytest.approx(
        [total / len(batch)] * len(batch)
    )


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        (0.0, [2.0, -2.0, None]),
        (0.5, [2.0, -1.0, None]),
        (-0.5, [1.0, -2.0, None]),
        (1.0, [2.0, None, None]),
        (-1.0, [None, -2.0, None]),
    ],
)
def test_the_balance_favours_one_side(balance, expected):
    """A balance of +0.5 halves negative advantages, -0.5 positive ones; +1 and -1 drop them."""
    assert balanced([2.0, -2.0, None], balance) == expected
