"""Items that could not be scored have no number."""

import math

from nat.data_models.evaluator import EvalInputItem, EvalOutput, EvalOutputItem
from nat.eval.scoring import average, unscored, validate_output


def given_items(*ids):
    return [EvalInputItem(id=i, input_obj="", expected_output_obj=None) for i in ids]


def scored(item_id, score, **fields):
    return EvalOutputItem(id=item_id, score=score, reasoning=None, **fields)


def output(*items):
    return EvalOutput(average_score=99, eval_output_items=list(items))


def test_average_leaves_out_items_without_a_score():
    """A failure is no zero and does not count; without any number there is no average."""
    assert average([scored("a", 1.0), unscored("b", "broken"), scored("c", 0)]) == 0.5
    assert average([unscored("a", "broken")]) is None


def test_missing_duplicate_unknown_and_empty_scores_have_reasons():
    """Each mistake of an evaluator is a reason on its item, without a number."""
    given_ = given_items("missing", "twice", "none", "nan", "good")
    result = validate_output(
        output(
            scored("twice", 1),
            scored("twice", 0),
            scored("none", None),
            scored("nan", math.nan),
            scored("good", 1),
            scored("x", 1),
        ),
        given_,
    )
    errors = {item.id: (item.score, item.error) for item in result.eval_output_items}
    assert errors["missing"] == (None, "the evaluator returned no score for this item")
    assert errors["twice"] == (None, "the evaluator returned 2 scores for this item")
    assert errors["none"] == (None, "the score is None: the evaluator gave none for this answer")
    assert errors["nan"] == (None, "the score is nan, not a finite number")
    assert errors["x"] == (None, "the evaluator scored 'x', which it was not given: write `id=item.id`")
    assert errors["good"] == (1, None)
    assert result.average_score == 1.0


def test_an_evaluators_own_records_are_kept():
    """Fields of a subclass and scores that are no numbers are kept."""

    class Detailed(EvalOutputItem):
        detail: str

    item = Detailed(id="a", score={"f1": 0.5}, reasoning=None, detail="kept")
    result = validate_output(output(item), given_items("a"))
    assert result.eval_output_items == [item]
    assert result.average_score == 99
