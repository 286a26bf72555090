"""Which generations are compared, by their rewards."""

from math import inf, isfinite, nan

from hypothesis import given
from hypothesis import strategies as st

from nat.preferences.pairs import pairs_of

REWARDS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, nan, inf]), max_size=8)


def test_the_widest_difference_comes_first():
    """A cap keeps the clearest preferences."""
    assert pairs_of([0.5, 1.0, 0.0]) == [(1, 2), (1, 0), (0, 2)]
    assert pairs_of([0.5, 1.0, 0.0], most=1) == [(1, 2)]


def test_a_cap_uses_many_generations():
    """Of equal differences, generations that are in no pair yet come first."""
    assert pairs_of([1, 0, 1, 0, 1, 0], most=3) == [(0, 1), (2, 3), (4, 5)]
    assert len({index for pair in pairs_of([1, 1, 1, 1, 0, 0], most=4) for index in pair}) == 6


def test_the_margin_is_the_least_difference():
    """A difference of exactly the margin suffices, also after rounding; equal rewards never do."""
    assert pairs_of([0.3, 0.2, 0.25], margin=0.1) == [(0, 1)]
    assert pairs_of([1.0, 1.0]) == []


def test_best_against_worst():
    """One pair, of the first generations with the highest and the lowest reward; none if all are equal."""
    assert pairs_of([0.0, 1.0, 0.5, 1.0, 0.0], how="best_worst") == [(1, 0)]
    assert pairs_of([0.5, 0.5], how="best_worst") == []
    assert pairs_of([], how="best_worst") == []


@given(REWARDS, st.sampled_from([0.0, 0.25, 0.6]))
def test_all_pairs(rewards, margin):
    """Each two generations whose finite rewards differ by the margin are one pair, the better one first."""
    finite = [(index, reward) for index, reward in enumerate(rewards) if isfinite(reward)]
    expected = {(a, b) for a, x in finite for b, y in finite if x > y and x - y >= margin}
    found = pairs_of(rewards, margin)
    assert len(found) == len(set(found))
    assert set(found) == expected
    differences = [rewards[a] - rewards[b] for a, b in found]
    assert differences == sorted(differences, reverse=True)
