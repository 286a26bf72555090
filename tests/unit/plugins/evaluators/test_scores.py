"""Evaluators that compute a score of one answer."""

import pytest
from pydantic import ValidationError

from nat.data_models.evaluator import EvalInputItem
from nat.errors import EvaluationError
from nat.plugins.evaluators.scores import (
    ExactMatchConfig,
    JsonPathScoreConfig,
    NumericClosenessConfig,
    exact_match,
    json_path_score,
    last_number,
    numeric_closeness,
)


def item(output, expected=None):
    return EvalInputItem(id="a", input_obj="", expected_output_obj=expected, output_obj=output)


@pytest.mark.parametrize(
    ("answer", "expected", "equal"),
    [
        ("0042", "0042", True),
        ("42", "0042", False),
        ("1000", "1e3", False),
        (" 42\n", "42", True),
        ("Paris", "paris", False),
        ("42", 42, True),
        ("42.5", 42, False),
        (42, "42", True),
        ("true", 1, False),
        ("true", True, True),
        ('{"b": 1, "a": 2}', {"a": 2, "b": 1}, True),
        ([1, 2], [1, 2], True),
        ({"a": 2, "b": 1}, '{"b": 1, "a": 2}', True),
        ("12345678901234567890123", 12345678901234567890123, True),
        ("[" * 100_000, 42, False),
        ("1" + "0" * 5000, 42, False),
        ("12345678901234567890124", 12345678901234567890123, False),
    ],
)
def test_texts_match_as_texts_and_values_as_values(answer, expected, equal):
    """Texts are compared as they are, other expected values as JSON."""
    assert exact_match(item(answer, expected), ExactMatchConfig())[0] == equal


def test_an_object_is_not_compared_with_a_text():
    """It would never be equal; the error says how to name the part that is the answer."""
    with pytest.raises(EvaluationError, match=r"answer is a dict.*\n.*result_json_path"):
        exact_match(item({"label": "spam"}, "spam"), ExactMatchConfig())


def test_options_change_the_comparison():
    """`ignore_case` ignores case, and `strip: false` compares white space."""
    assert exact_match(item("PARIS", "Paris"), ExactMatchConfig(ignore_case=True))[0] == 1
    assert exact_match(item("42 ", "42"), ExactMatchConfig(strip=False))[0] == 0


def test_a_row_without_expected_answer_has_no_score():
    """No score differs from a score of 0."""
    with pytest.raises(EvaluationError, match="no expected answer"):
        exact_match(item("x"), ExactMatchConfig())
    with pytest.raises(EvaluationError, match="'five' has no number"):
        numeric_closeness(item("5", "five"), NumericClosenessConfig())


@pytest.mark.parametrize(
    ("output", "path", "score"),
    [
        ({"score": 0.25}, "$.score", 0.25),
        ('{"score": 1}', "$.score", 1.0),
        ({"score": True}, "$.score", 1.0),
        ({"games": [{"won": 0.5}]}, "$.games[0].won", 0.5),
    ],
)
def test_the_score_is_read_from_the_output(output, path, score):
    """Records and JSON text work; a boolean counts as 1 or 0."""
    assert json_path_score(item(output), JsonPathScoreConfig(path=path))[0] == score


@pytest.mark.parametrize("output", [{"won": 1}, "no json", {"score": "1"}, {"score": None}, {"score": float("nan")}])
def test_an_output_without_a_number_there_has_no_score(output):
    """A missing number is no score of 0."""
    with pytest.raises(EvaluationError, match=r"\$\.score"):
        json_path_score(item(output), JsonPathScoreConfig())


@pytest.mark.parametrize(
    ("config", "options", "problem"),
    [
        (JsonPathScoreConfig, {"path": "$.["}, "is not a JSON path"),
        (NumericClosenessConfig, {"full_score_within": 2}, "above zero_score_from"),
    ],
)
def test_wrong_options_are_refused_with_the_config(config, options, problem):
    """The error comes before any rollout."""
    with pytest.raises(ValidationError, match=problem):
        config(**options)


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
    """`full_score_within` and `zero_score_from` are the ends, `relative` the unit; no number is wrong."""
    config = NumericClosenessConfig(full_score_within=1, zero_score_from=5)
    scores = [numeric_closeness(item(answer, 10), config)[0] for answer in (10, 11, 13, 15, 99, "?")]
    assert scores == [1, 1, 0.5, 0, 0, 0]
    share = NumericClosenessConfig(zero_score_from=0.5, relative=True)
    assert numeric_closeness(item(150, 200), share)[0] == 0.5
    with pytest.raises(EvaluationError, match="expected number is 0"):
        numeric_closeness(item(1, 0), share)
