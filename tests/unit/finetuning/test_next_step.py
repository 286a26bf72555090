"""A run without an improvement ends with what to try, from its own numbers."""

import pytest

from fakes.run_records import epoch_records
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.next_step import next_step
from nat.runs.records import Verdict

FLAT, RISING = [0.4, 0.5, 0.4, 0.5, 0.4, 0.5], [0.1, 0.11, 0.3, 0.4, 0.6, 0.61]


def advice(rewards=FLAT, verdict=Verdict.NOT_SHOWN, **changes) -> str | None:
    return next_step(verdict, epoch_records(rewards, **changes), GuardsConfig())


def test_a_model_that_improved_needs_no_advice():
    """Nor does a run without epochs, of which nothing is known."""
    assert advice(verdict=Verdict.IMPROVED) is None
    assert advice([]) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"groups_without_difference": 23, "filtered_groups": 0},
            "96% of the groups had equal rewards, and 6 of 6 epochs trained nothing. Choose examples",
        ),
        ({"groups_without_difference": 23}, "96% of the groups had equal rewards. Choose examples"),
        ({"metrics": {"rollout/truncated": 0.98}}, "98% of the rollouts hit a token limit"),
        ({"metrics": {"rollout/truncated": 0.98}}, "out of training. The reward in training did not rise"),
        (
            {"metrics": {"train/learning_rate": 1e-5}},
            "0.450 in the last). Train longer, or raise the learning rate (1e-05 was used; try 3e-05).",
        ),
        ({}, "Train longer, or raise the learning rate."),
    ],
)
def test_what_stands_out_is_said(changes, expected):
    """Without a signal no learning rate helps; with one, answers that were cut off and a low rate may both be why."""
    assert expected in str(advice(**changes))


def test_a_reward_that_rose_tells_too_few_held_out_examples_from_learning_by_heart():
    """Without held-out examples, a reward that rose is all that was asked for."""
    assert "rose (0.105 in the first third of the epochs, 0.605 in the last). Use more held-out" in str(advice(RISING))
    assert "learns its own examples" in str(advice(RISING, Verdict.WORSE))
    assert advice(RISING, None) is None
    assert "did not rise" in str(advice(FLAT, None))


def test_a_fall_is_explained_by_the_update_before_it():
    """The cause that the guards would have named, had the run gone on."""
    epochs = epoch_records([0.5, 0.8, 0.1], metrics={"train/approx_kl": 4.0, "train/learning_rate": 0.02})
    assert "moved the policy too far" in str(next_step(Verdict.WORSE, epochs, GuardsConfig()))


@pytest.mark.parametrize(("count", "words"), [(1, "1 epoch is few"), (5, "5 epochs are few")])
def test_few_epochs_tell_nothing_of_a_rise(count, words):
    """Two epochs in each third are the least that have a spread."""
    assert words in str(advice([0.5] * count))
