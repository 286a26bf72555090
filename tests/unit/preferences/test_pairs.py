"""Which answers are pairs, by their scores."""

from math import inf, isfinite, nan

from hypothesis import given
from hypothesis import strategies as st

from nat.preferences.pairs import PairRule, SkipCause

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, nan, inf]), max_size=8)


def pairs_of(scores, *settings):
    """The index pairs of answers that all differ."""
    return PairRule(*settings).choose(scores, lambda better, worse: (better, worse))[0]


def test_the_widest_difference_comes_first():
    """A limit keeps the clearest preferences."""
    assert pairs_of([0.5, 1.0, 0.0]) == [(1, 2), (1, 0), (0, 2)]
    assert pairs_of([0.5, 1.0, 0.0], 0.0, "all", 1) == [(1, 2)]


def test_a_limit_uses_many_answers():
    """Of equal differences, answers that are in no pair yet come first."""
    assert pairs_of([1, 0, 1, 0, 1, 0], 0.0, "all", 3) == [(0, 1), (2, 3), (4, 5)]
    assert len({index for pair in pairs_of([1, 1, 1, 1, 0, 0], 0.0, "all", 4) for index in pair}) == 6


def test_what_is_no_pair_takes_no_place_in_the_limit():
    """The next widest difference comes in its place; each cause is named, and `compare` is not asked in vain."""
    asked = []

    def compare(better, worse):
        asked.append((better, worse))
        return SkipCause.EQUAL_RESPONSES if better == 0 else (better, worse)

    for rule in (PairRule(most=1), PairRule(which="best_worst")):
        pairs, refused, excluded = rule.choose([1.0, 0.5, 0.0, 0.0], compare)
        assert pairs == [(1, 2)]
        assert refused == [(0, worse, SkipCause.EQUAL_RESPONSES) for worse in (2, 3, 1)]
        assert excluded == [(1, 3, SkipCause.TURN_CAP), (2, 3, SkipCause.TIE)]
    assert not {(1, 3), (2, 3)} & set(asked)


@given(SCORES, st.sampled_from([0.0, 0.25, 0.6]))
def test_all_pairs(scores, margin):
    """Each two answers whose finite scores differ by the margin are one pair, the better one first."""
    finite = [(index, score) for index, score in enumerate(scores) if isfinite(score)]
    expected = {(a, b) for a, x in finite for b, y in finite if x > y and x - y >= margin}
    found = pairs_of(scores, margin)
    assert len(found) == len(set(found))
    assert set(found) == expected
    differences = [scores[a] - scores[b] for a, b in found]
    assert differences == sorted(differences, reverse=True)
