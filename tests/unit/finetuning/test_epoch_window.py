"""What the guards look at does not grow with the run, and they find the same in it."""

import pytest

from fakes.run_records import epoch_record
from nat.data_models.finetuning import GuardsConfig
from nat.errors import RewardCollapse
from nat.finetuning.alarms import ENTROPY_EPOCHS
from nat.finetuning.epoch_window import EpochWindow
from nat.finetuning.guards import check_reward


def filled(rewards, **limits) -> EpochWindow:
    window = EpochWindow(GuardsConfig(**limits))
    for epoch, reward in enumerate(rewards):
        window.add(epoch_record(epoch, reward, min_reward=reward - 0.1, max_reward=reward + 0.1))
    return window


def test_a_short_run_is_there_whole():
    """As many epochs as the window holds are all in it, in their order."""
    assert [record.epoch for record in filled([0.5] * 12).records] == list(range(12))


def test_a_long_run_leaves_first_last_and_extremes():
    """The epochs with the lowest and the highest reward stay, wherever they were."""
    rewards = [0.5] * 1000
    rewards[300], rewards[400] = 0.2, 0.8
    epochs = [record.epoch for record in filled(rewards).records]
    assert epochs == [0, 1, 2, 300, 400, *range(1000 - ENTROPY_EPOCHS - 1, 1000)]


def test_windows_of_the_guards_fit_in():
    """Whoever sets longer windows gets as many epochs as they need."""
    assert len(filled([0.5] * 1000, epochs_without_signal=90).records) >= 90
    assert len(filled([0.5] * 1000, collapse_epochs=50).records) >= 100


@pytest.mark.parametrize("length", [6, 60, 600])
def test_a_collapse_is_found_in_runs_of_any_length(length):
    """The first epochs are still those of the run's beginning."""
    rewards = [0.8] * (length - 3) + [0.1] * 3
    with pytest.raises(RewardCollapse, match=r"from 0\.800 in epochs? \d+ to"):
        check_reward(filled(rewards).records, GuardsConfig())
