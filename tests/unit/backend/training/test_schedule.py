"""The learning rate over the steps of a run."""

import pytest

from nat.backend.training.schedule import FLOOR, learning_rate_at
from nat.wire.training import TrainingConfig


def rates(steps, **config):
    return [learning_rate_at(TrainingConfig(learning_rate=1.0, **config), step) for step in steps]


def test_without_a_schedule_it_is_constant():
    """The configured rate, from the first step on."""
    assert rates([0, 1, 1000]) == [1.0, 1.0, 1.0]


def test_it_rises_over_the_warmup():
    """No step is wasted at zero."""
    assert rates(range(5), warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_it_falls_over_the_decay_and_stays():
    """Never to zero: a run that goes on longer still learns."""
    assert rates([0, 5, 10, 11, 1000], decay_steps=10) == pytest.approx([1.0, 0.55, FLOOR, FLOOR, FLOOR])


def test_both_count_from_the_first_step():
    """One after the other would need to know of each other."""
    assert rates([0, 1, 2], warmup_steps=2, decay_steps=10) == pytest.approx([0.5, 0.91, 0.82])
