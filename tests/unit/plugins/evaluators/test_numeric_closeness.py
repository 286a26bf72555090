import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.errors import EvaluationError
from nat.plugins.evaluators.numeric_closeness import (
    NumericClosenessConfig,
    NumericClosenessEvaluator,
    closeness,
    last_number,
)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("42", 42),
        ("The sum of 3 and 4 is 7.", 7),
        ("10-5", 5),
        ("= -5", -5),
        ("1,234,567.5", 1234567.5),
        ("1, 2, 3", 3),
        ("6.02e23", 6.02e23),
        (".5", 0.5),
        ("\N{MINUS SIGN}3", -3),
        ("none", None),
        ("1e999", None),
        (7, 7),
        (True, None),
        (None, None),
        (float("nan"), None),
    ],
)
def test_the_last_number_is_taken(value, number):
    """The last number of an answer is its result; separators and signs are understood."""
    assert last_number(value) == number


def test_the_score_falls_linearly():
    """`full_score_within` and `zero_score_from` are the ends, `relative` the unit."""
    config = NumericClosenessConfig(full_score_within=1, zero_score_from=5)
    assert [closeness(x, 10, config) for x in (10, 11, 13, 15, 99)] == [1, 1, 0.5, 0, 0]
    share = NumericClosenessConfig(zero_score_from=0.5, relative=True)
    assert closeness(150, 200, share) == 0.5
    with pytest.raises(EvaluationError, match="expected number is 0"):
        closeness(1, 0, share)


def test_ends_in_the_wrong_order_are_refused():
    """A config whose ends are reversed is refused."""
    with pytest.raises(ValidationError, match=r"full_score_within \(2.0\) is above zero_score_from \(1.0\)"):
        NumericClosenessConfig(full_score_within=2)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(0, 1), st.floats(1, 10))
def test_scores_stay_between_0_and_1(number, expected, full, zero):
    """Scores stay in the range for any numbers, and within `full_score_within` they are 1."""
    score = closeness(number, expected, NumericClosenessConfig(full_score_within=full, zero_score_from=zero))
    assert 0 <= score <= 1
    assert score == 1 or abs(number - expected) > full


async def test_a_missing_number_scores_zero_and_a_missing_expectation_nothing():
    """An answer without a number is wrong; a row without one is no example."""
    items = [
        EvalInputItem(id=i, input_obj="", expected_output_obj=e, output_obj="?") for i, e in (("a", 5), ("b", "five"))
    ]
    result = await NumericClosenessEvaluator(NumericClosenessConfig()).evaluate(EvalInput(eval_input_items=items))
    assert [item.score for item in result.eval_output_items] == [0.0, None]
    assert "'five' has no number" in result.eval_output_items[1].error
