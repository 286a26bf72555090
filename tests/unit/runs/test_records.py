from nat.runs.records import after_epoch, epoch_number


def test_people_count_epochs_from_1():
    """The first epoch is 1 in every text, whatever its number is in the files."""
    assert epoch_number(0) == 1


def test_held_out_examples_are_played_before_training_and_after_epochs():
    """A validation's number counts the epochs before it, so 0 is before training."""
    assert (after_epoch(0), after_epoch(5)) == ("before training", "after epoch 5")
