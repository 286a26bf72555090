from nat.runs.records import after_epoch, epoch_number


def test_messages_count_epochs_from_1():
    """Files count from 0, messages from 1."""
    assert epoch_number(0) == 1


def test_validations_come_before_training_and_after_epochs():
    """A validation's number is that of the epochs before it, so 0 is before training."""
    assert (after_epoch(0), after_epoch(5)) == ("before training", "after epoch 5")
