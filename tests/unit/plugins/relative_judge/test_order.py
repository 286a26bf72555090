import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.plugins.relative_judge.order import middle, on_scale, order_facts, taken
from nat.plugins.relative_judge.prompt import AttemptScore

unit = st.floats(0, 1)


def score(value):
    return AttemptScore(score=value)


def test_a_judge_of_attempts_has_no_position_bias():
    """The same scores in both orders cancel."""
    facts = order_facts([0.1, 0.9, 0.5], [0.1, 0.9, 0.5])
    assert (facts.pairs, facts.position_bias, facts.flipped) == (3, 0, 0)


@pytest.mark.parametrize(("scores", "bias"), [([1, 0.5, 0], 1), ([0, 0.5, 1], -1)])
def test_a_judge_of_places_has_all_of_it(scores, bias):
    """Scores by the place alone are a bias of 1 for the first, and -1 for the last; every pair flips."""
    facts = order_facts(scores, scores[::-1])
    assert (facts.position_bias, facts.flipped) == (bias, 3)


def test_ties_count_for_neither_place():
    """A judge that never decides has no bias."""
    facts = order_facts([0.5, 0.5], [0.5, 0.5])
    assert (facts.pairs, facts.position_bias, facts.flipped) == (1, 0, 0)


def test_a_call_takes_what_fits():
    """At most `count` attempts and `room` characters, and one at least."""
    assert taken([3, 1, 0, 2], [10, 10, 10, 10], count=8, room=25) == [3, 1]
    assert taken([3, 1, 0, 2], [10, 10, 10, 10], count=3, room=100) == [3, 1, 0]
    assert taken([0], [50], count=3, room=10) == [0]
    assert taken([0, 1, 2], [10, 10, 10], count=3, room=20) == [0, 1], "exactly full"


def test_the_anchor_is_the_attempt_in_the_middle():
    """The best or the worst would leave one side of the scale without a measure."""
    assert middle({4: score(0.9), 2: score(0.1), 7: score(0.5)}) == 7


@given(unit, unit, unit, unit)
def test_scores_of_two_calls_keep_their_order(first, second, anchor, known):
    """The anchor gets its known score, the order stays, and every score is from 0 to 1."""
    low, high = (on_scale(score(v), anchor=score(anchor), known=score(known)).score for v in sorted([first, second]))
    assert low <= high + 1e-12
    assert on_scale(score(anchor), anchor=score(anchor), known=score(known)).score == pytest.approx(known)


@pytest.mark.parametrize(
    ("given", "anchor", "known", "expected"),
    [(0.0, 0.0, 0.4, 0.4), (1.0, 1.0, 0.4, 0.4), (1.0, 0.563, 0.323, 1.0), (0.0, 0.5, 0.4, 0.0)],
    ids=["the anchor at the bottom", "at the top", "the best, whose sum is rounded up", "the worst"],
)
def test_the_ends_of_the_scale_are_kept(given, anchor, known, expected):
    """A score equal to the anchor's gets the known one, also at 0 and 1; nothing leaves the scale by rounding."""
    assert on_scale(score(given), anchor=score(anchor), known=score(known)).score == expected
