import pytest

from fakes.run_records import validation_record
from nat.finetuning.verdict import compare, compare_validations
from nat.runs.records import Verdict, after_epoch, same_examples


def test_validations_come_before_training_and_after_epochs():
    """A validation's number is that of the epochs before it, so 0 is before training."""
    assert (after_epoch(0), after_epoch(5)) == ("before training", "after epoch 5")


def test_copies_of_an_example_are_no_further_evidence():
    """Eight questions in six copies each count as eight, so a gain on five of them is no verdict; JSON is as before."""
    ids = [f"{question} {copy}" for question in range(8) for copy in range(6)]
    repeats = {key: f"{key[0]} 0" for key in ids if key[2] != "0"}
    before = validation_record(0, dict.fromkeys(ids, 0.0)).model_copy(update={"copies": repeats})
    after = before.model_copy(update={"scores": {key: float(key[0] < "5" and key[2] != "1") for key in ids}})
    assert compare(before.scores, after.scores).verdict is Verdict.IMPROVED
    judged = compare_validations(before, after)
    assert (judged.num_examples, judged.verdict) == (8, Verdict.NOT_SHOWN)
    assert judged.after == pytest.approx(compare(before.scores, after.scores).after)
    assert "copies" not in validation_record().model_dump()


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ([{"a": 0.25, "b": 1.0}, {"a": 1.0, "b": None}], [[0.25, 1.0], [1.0, 0.25]]),
        ([{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": None}], [[1.0, 1.0], [1.0, 0.0]]),
        (
            [{"a": -1.0, "b": None}, {"a": -1.0, "b": 0.5}, {"a": None, "b": None}],
            [[-1.0, -1.0], [-1.0, 0.5], [-1.0] * 2],
        ),
        ([{"a": 0.5, "b": None}, {"a": 0.0, "b": None}], [[0.5], [0.0]]),
        ([{"a": None}], [[]]),
    ],
)
def test_validations_are_compared_on_the_same_examples(given, counted):
    """What failed counts as the lowest score seen, so that failing does not raise a mean; what always fails is out."""
    records = [validation_record(epoch, scores) for epoch, scores in enumerate(given)]
    assert [[*own.values()] for own in same_examples(records)] == counted
