import pytest

from fakes.run_records import validation_record
from nat.finetuning.verdict import compare
from nat.runs.records import Verdict, after_epoch


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
    judged = compare(before.distinct, after.distinct)
    assert (judged.num_examples, judged.verdict) == (8, Verdict.NOT_SHOWN)
    assert judged.after == pytest.approx(compare(before.scores, after.scores).after)
    assert "copies" not in validation_record().model_dump()


def test_a_copy_without_a_score_does_not_count():
    """The others of its example do; without any, the example has none."""
    record = validation_record(0, {"a": 1.0, "b": None, "c": None}).model_copy(update={"copies": {"b": "a"}})
    assert record.distinct == {"a": 1.0, "c": None}
