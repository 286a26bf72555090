from fakes.run_records import epoch_records
from nat.runs.epochs import played_in, shown, span, when
from nat.runs.records import Phase


def test_people_count_epochs_from_1():
    """The first epoch is 1 in every text, whatever its number is in the files."""
    assert shown(0) == 1
    assert span(epoch_records([0.5, 0.6])) == "epochs 1 to 2"
    assert span(epoch_records([0.5])) == "epoch 1"


def test_held_out_examples_are_played_before_training_and_after_epochs():
    """A validation's number counts the epochs before it, so 0 is before training."""
    assert (when(0), when(5)) == ("before training", "after epoch 5")
    assert played_in(Phase.TRAIN, 0) == "training, epoch 1"
    assert played_in(Phase.VALIDATION, 0) == "held-out before training"
