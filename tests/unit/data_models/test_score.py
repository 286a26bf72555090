"""Scores are finite numbers; other values have reasons."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.score import interval, is_score, mean, score_problem
from nat.wire.rewards import LARGEST

OF_LIBRARIES = [np.float32(0.25), np.uint64(3), np.bool_(True), np.array(0.5), Decimal("0.5"), Fraction(1, 2)]


@pytest.mark.parametrize("score", [1, 0.5, False, -LARGEST, *OF_LIBRARIES])
def test_scores(score):
    """Finite numbers of any library, truth values and arrays without dimensions are scores."""
    assert is_score(score)
    assert score_problem(score) is None


@pytest.mark.parametrize("score", OF_LIBRARIES)
def test_a_library_s_number_is_written_as_a_number(score):
    """Journals, reports and a resumed run have it as a number, not as text."""
    item = EvalOutputItem(id="a", score=score, reasoning=None)
    assert EvalOutputItem.model_validate_json(item.model_dump_json()).score == float(score)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "the score is None: the evaluator gave none for this answer"),
        ("0.9", "the score is '0.9' (str), not a number; give float(…)"),
        (np.str_("0.9"), "(str_), not a number; give float(…)"),
        (np.array([0.5]), "the score is array([0.5]) (ndarray), not a number"),
        ({"f1": 1}, "the score is {'f1': 1} (dict), not a number"),
        (math.nan, "the score is nan, not a finite number"),
        (-math.inf, "the score is -inf, not a finite number"),
        (1e308, "the score is larger than 1e+15"),
        (10**5000, "the score is larger than 1e+15"),
    ],
    ids=range(9),
)
def test_each_invalid_score_has_its_own_message(value, problem):
    """The message says what the evaluator returned."""
    assert not is_score(value)
    assert problem in score_problem(value)


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=1), st.integers(1, 30))
def test_a_mean_stays_within_the_values(values, times):
    """The mean of equal values is that value, which the sum divided by the count is not always."""
    assert min(values) <= mean(values) <= max(values)
    assert mean(values[:1] * times) == values[0]


@pytest.mark.parametrize(
    ("count", "total", "low", "high"), [(16, 16, 0.83, 1.0), (0, 10, 0.0, 0.28), (8, 16, 0.24, 0.76), (1, 1, 0.0, 1.0)]
)
def test_the_interval_of_a_share_is_wide_for_few(count, total, low, high):
    """It never leaves 0 to 1, and equal values do not make it a point."""
    found = interval([1.0] * count + [0.0] * (total - count), 0.0, 1.0)
    assert found == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))
