"""Optimizer steps and micro-batches hold every row once and count shared prompts once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.training.batch import Row
from nat.backend.training.micro_batch import optimizer_steps
from nat.wire.training import TrainingConfig


def row(index, length, group=0):
    return Row(index, group, index, [0] * length, [0], [0], [0.0], [1.0])


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3))
def test_every_pass_has_every_group_once(groups, passes, steps, seed):
    """Each pass has all groups in non-empty steps whose sizes differ by at most one; the seed decides the order."""
    rows = [row(i, 3, group=i // 2) for i in range(2 * groups)]
    config = TrainingConfig(num_iterations=passes, steps_per_batch=steps, seed=seed)
    dealt = optimizer_steps(rows, config)
    per_pass = min(steps, groups)
    assert len(dealt) == passes * per_pass
    for number in range(passes):
        hands = [{r.group for r in hand} for hand in dealt[number * per_pass : (number + 1) * per_pass]]
        assert sorted(g for hand in hands for g in hand) == list(range(groups))
        assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert dealt == optimizer_steps(rows, config)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=12), st.integers(1, 60))
def test_steps_are_filled_with_whole_rollouts(rollouts, limit):
    """Only a single longer rollout exceeds the limit of a step; each row is in one step, and no step is empty."""
    rows = [
        Row(2 * n + part, group, n, [0] * length, [0], [0], [0.0], [1.0])
        for n, (group, length) in enumerate(rollouts)
        for part in range(2)
    ]
    config = TrainingConfig(tokens_per_step=limit, num_iterations=2, seed=1)
    steps = optimizer_steps(rows, config)
    assert sorted(r.index for step in steps for r in step) == sorted([*range(len(rows))] * 2)
    for step in steps:
        own = {r.rollout for r in step}
        assert len(step) == 2 * len(own) > 0
        assert len(own) == 1 or sum(r.num_tokens for r in step) <= limit
    assert steps == optimizer_steps(rows, config)


@pytest.mark.parametrize(("rollouts", "steps"), [(1, 1), (31, 1), (64, 2), (130, 4), (10_000, 16)])
def test_the_usual_number_of_steps_follows_the_rollouts(rollouts, steps):
    """One optimizer step for each 32 rollouts, at most 16."""
    rows = [row(index, 3, group=index) for index in range(rollouts)]
    assert len(optimizer_steps(rows, TrainingConfig(num_iterations=1))) == steps
