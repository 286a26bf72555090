"""Scores are finite numbers; other values have reasons."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.data_models.score import is_score, mean, score_problem
from nat.wire.rewards import LARGEST


@pytest.mark.parametrize("score", [1, 0.5, False, -LARGEST, np.float32(0.25), np.uint64(3)])
def test_scores(score):
    """Finite numbers of any library and booleans are scores."""
    assert is_score(score)
    assert score_problem(score) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "the score is None: the evaluator gave none for this answer"),
        ("0.9", "the score is '0.9' (str), not a number"),
        ({"f1": 1}, "the score is {'f1': 1} (dict), not a number"),
        (math.nan, "the score is nan, not a finite number"),
        (-math.inf, "the score is -inf, not a finite number"),
        (1e308, "the score is 1e+308; only scores up to 1e+15 can be averaged"),
        (10**5000, "the score is a whole number of more than 308 digits; only scores up to 1e+15 can be averaged"),
    ],
    ids=range(7),
)
def test_each_invalid_score_has_its_own_message(value, problem):
    """The message says what the evaluator returned."""
    assert not is_score(value)
    assert score_problem(value) == problem


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=1), st.integers(1, 30))
def test_a_mean_stays_within_the_values(values, times):
    """The mean of equal values is that value, which the sum divided by the count is not always."""
    assert min(values) <= mean(values) <= max(values)
    assert mean(values[:1] * times) == values[0]
