import pytest

from fakes.run_records import epoch_records, validation_record
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis import GRADIENT, KL
from nat.finetuning.held_out_fall import held_out_warning

CONFIG = GuardsConfig()


def validations(*shares):
    """One of 100 games after every tenth epoch, of which a share is won: always the first ones."""
    return [
        validation_record(10 * n, {str(game): float(game < 100 * share) for game in range(100)})
        for n, share in enumerate(shares)
    ]


def test_a_model_that_learns_its_examples_by_heart_is_told():
    """The reward in training rises while the held-out score falls below where it began."""
    text = held_out_warning(
        validations(0.5, 0.6, 0.3), lambda: epoch_records([0.5 + n / 50 for n in range(20)]), CONFIG
    )
    assert text.startswith("The held-out score fell from 0.600 after epoch 10 to 0.300 after epoch 20. ")
    assert "The mean reward in training did not (0.880 in epoch 20)" in text


def test_a_model_that_broke_is_told_with_what_changed():
    """Both fell: the update is named, as everywhere."""
    epochs = epoch_records([0.5] * 12 + [0.0] * 8, metrics={GRADIENT: 1.0})
    epochs[11] = epochs[11].model_copy(update={"metrics": {KL: 9.0}})
    text = held_out_warning(validations(0.32, 0.79, 0.1), lambda: epochs, CONFIG)
    assert "fell from 0.790 after epoch 10 to 0.100 after epoch 20. The update of epoch 12 moved the policy" in text


@pytest.mark.parametrize(
    "shares",
    [(), (0.5,), (0.5, 0.6), (0.5, 0.9, 0.7), (0.5, 0.48)],
    ids=["none", "one", "a rise", "less than the best", "chance"],
)
def test_no_fall_no_warning(shares):
    """Lower than the best is no fall as long as it is above the start and half of the way up."""
    assert held_out_warning(validations(*shares), list, CONFIG) is None


def test_a_fall_from_the_start_is_told_as_one():
    """People know no epoch 0: the first scores are those before training."""
    text = held_out_warning(validations(0.8, 0.3), list, CONFIG)
    assert text.startswith("The held-out score fell from 0.800 before training to 0.300 after epoch 10. ")


def test_a_fall_is_told_once():
    """At the validation that shows it; and again only after it had recovered."""
    told = [held_out_warning(validations(0.5, 0.8, 0.1, 0.12, 0.8, 0.1)[:n], list, CONFIG) for n in range(1, 7)]
    assert [text is not None for text in told] == [False, False, True, False, False, True]


def test_a_trainer_that_tells_the_mean_alone_gets_no_warning():
    """One number before and after cannot be told from chance."""
    means = [validation_record(n, {"all examples": mean}) for n, mean in enumerate([0.8, 0.1])]
    assert held_out_warning(means, list, CONFIG) is None


def test_examples_that_failed_compare_with_nothing():
    """Without an example that was scored both times there is nothing to say."""
    one, other = {"a": 1.0, "b": None}, {"a": None, "b": 0.0}
    assert held_out_warning([validation_record(0, one), validation_record(1, other)], list, CONFIG) is None


def test_epochs_are_read_only_to_explain_a_fall():
    """A long run has many of them, and most validations show no fall."""
    read = []

    def epochs():
        read.append(True)
        return []

    held_out_warning(validations(0.5, 0.6), epochs, CONFIG)
    assert not read
    held_out_warning(validations(0.5, 0.6, 0.1), epochs, CONFIG)
    assert read
