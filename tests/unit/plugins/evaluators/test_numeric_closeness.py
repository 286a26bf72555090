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
    """An answer ends with its result; separators and signs are read as people write them."""
    assert last_number(value) == number


def test_the_score_falls_in_a_straight_line():
    """`full_score_within` and `zero_score_from` are the two ends, `relative` the unit."""
    config = NumericClosenessConfig(full_score_within=1, zero_score_from=5)
    assert [closeness(x, 10, config) for x in (10, 11, 13, 15, 99)] == [1, 1, 0.5, 0, 0]
    share = NumericClosenessConfig(zero_score_from=0.5, relative=True)
    assert closeness(150, 200, share) == 0.5
    with pytest.raises(EvaluationError, match="expected number is 0"):
        closeness(1, 0, share)


def test_ends_in_the_wrong_order_are_refused():
    """A config under which nothing can be scored is an error."""
    with pytest.raises(ValidationError, match=r"full_score_within \(2.0\) is above zero_score_from \(1.0\)"):
        NumericClosenessConfig(full_score_within=2)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(0, 1), st.floats(1, 10))
def test_scores_stay_between_0_and_1(number, expected, full, zero):
    """Whatever the numbers are, and near enough is always 1."""
    score = closeness(number, expected, NumericClosenessConfig(full_score_within=full, zero_score_from=zero))
    assert 0 <= score <= 1
    assert score == 1 or abs(number - expected) > full


async def test_no_number_is_wrong_but_no_expected_number_is_an_error():
    """The model's silence scores 0; a gap in the dataset scores nothing."""
    items = [
        EvalInputItem(id=i, input_obj="", expected_output_obj=e, output_obj="?") for i, e in (("a", 5), ("b", "five"))
    ]
    result = await NumericClosenessEvaluator(NumericClosenessConfig()).evaluate(EvalInput(eval_input_items=items))
    assert [item.score for item in result.eval_output_items] == [0.0, None]
    assert "'five' has no number" in result.eval_output_items[1].error
