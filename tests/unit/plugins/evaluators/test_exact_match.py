import pytest

from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.plugins.evaluators.exact_match import ExactMatchConfig, ExactMatchEvaluator, matches


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
        ("12345678901234567890123", 12345678901234567890123, True),
        ("[" * 100_000, 42, False),
        ("1" + "0" * 5000, 42, False),
        ("12345678901234567890124", 12345678901234567890123, False),
    ],
)
def test_texts_match_as_texts_and_values_as_values(answer, expected, equal):
    """Texts are compared as they are, other expected values as JSON."""
    assert matches(answer, expected, ExactMatchConfig()) is equal


def test_options_change_the_comparison():
    """`ignore_case` ignores case, and `strip: false` compares white space."""
    assert matches("PARIS", "Paris", ExactMatchConfig(ignore_case=True))
    assert not matches("42 ", "42", ExactMatchConfig(strip=False))


async def test_a_row_without_expected_answer_has_no_score():
    """A row without an expected answer has no score, which differs from a score of 0."""
    items = [
        EvalInputItem(id=i, input_obj="", expected_output_obj=e, output_obj="x") for i, e in (("a", None), ("b", "x"))
    ]
    result = await ExactMatchEvaluator(ExactMatchConfig()).evaluate(EvalInput(eval_input_items=items))
    assert [item.score for item in result.eval_output_items] == [None, 1.0]
    assert "no expected answer" in result.eval_output_items[0].error
