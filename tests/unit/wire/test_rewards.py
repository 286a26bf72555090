"""Harness, backend and ART server compare rewards by the same rule."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from nat.art.server.advantages import group_advantages
from nat.art.wire import ArtTrajectory
from nat.backend.algorithms.advantages import Returns, batch_advantages
from nat.backend.algorithms.registry import ADVANTAGES
from nat.data_models.finetuning import Trajectory
from nat.finetuning.trajectories.groups import has_signal
from nat.wire.rewards import LARGEST, alike, equal, spread
from nat.wire.training import Span, TrainingRollout

# Values that differ by nothing, by rounding, or by something that counts, at several sizes.
SIZES = st.sampled_from([1e-12, 1.0, 1e6])
STEPS = st.sampled_from([0.0, 1e-16, 1e-10, 2e-9, 1e-3, 0.5])
VALUES = st.builds(lambda size, step: size * (1 + step), SIZES, STEPS)


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ([], True),
        ([0.0, 0.0], True),
        ([0.3, 0.1 + 0.2], True),
        ([0.3, 0.3 + 1e-9], False),
        ([-1e-12, 1e-12], False),
        ([1e15, 1e15 + 1], True),
        ([0.0, 1e-300], False),
    ],
)
def test_the_tolerance_is_relative(values, same):
    """Differences count from a billionth of the numbers' size."""
    assert equal(values) == same
    assert (spread([[value] for value in values]) == 0) == same


def test_rollouts_with_the_same_numbers_are_alike():
    """Rollouts with equal numbers per answer carry no signal; rounding errors are ignored."""
    assert alike([[0.3, 1.0], [0.1 + 0.2, 1.0]])
    assert alike([[1.0, 0.0]])
    assert not alike([[0.3, 1.0], [1.0, 0.3]])
    assert not alike([[0.3, 1.0], [0.3]])
    assert alike([[1.0, 1.0], [1.0]])


@given(st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_harness_submits_exactly_what_the_backend_trains(rollouts):
    """A group that the harness finds worth submitting carries a signal to the learner, and no other does."""
    group = [Trajectory(episode=[], reward=0.0, shaped_rewards=own) for own in rollouts]
    found = batch_advantages([Returns.of(rollouts)], ADVANTAGES["dr_grpo"], normalize=True)
    assert found.has_signal == [has_signal(group)]


@given(st.lists(VALUES, min_size=2, max_size=4))
@example([1.0, 1.0 + 1.5e-9])
def test_the_art_server_trains_exactly_what_the_harness_submits(values):
    """Some trajectory is better or worse than the mean, if and only if rewards differ by more than rounding."""
    group = [Trajectory(episode=[], reward=value) for value in values]
    trained = any(a is not None for a in group_advantages(values, scale=True))
    assert trained == has_signal(group)


@pytest.mark.parametrize("reward", ["1e308", "-1e16", "NaN", "Infinity", f"1{'0' * 400}"])
def test_a_reward_that_would_overflow_is_refused(reward):
    """Its square, or a sum of two, would not be finite."""
    rows = '"rows": [{"token_ids": [1, 2], "spans": []}]'
    for model, rest in ((TrainingRollout, rows), (ArtTrajectory, '"logs": []')):
        with pytest.raises(ValidationError, match="reward"):
            model.model_validate_json(f'{{"reward": {reward}, {rest}}}')
        assert model.model_validate_json(f'{{"reward": {LARGEST}, {rest}}}').reward == LARGEST
    with pytest.raises(ValidationError, match="value"):
        Span.model_validate_json(f'{{"start": 1, "stop": 2, "value": {reward}}}')
