"""Optimizer steps and micro-batches hold every row once and count shared prompts once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.training.batch import Row
from nat.backend.training.micro_batch import optimizer_steps, pack, shared_prefix, usual_steps
from nat.backend.tree_attention import unique_tokens
from nat.wire.training import TrainingConfig


def row(index, length, group=0):
    return Row(index, group, index, [0] * length, [0], [0], [0.0], [1.0])


def test_each_update_shuffles_anew():
    """Groups meet other groups in each epoch; the same update is shuffled the same way again."""
    rows = [row(i, 3, group=i) for i in range(12)]
    for config in (TrainingConfig(steps_per_batch=3), TrainingConfig(tokens_per_step=9)):
        updates = [
            tuple(tuple(r.index for r in hand) for hand in optimizer_steps(rows, config, step)) for step in (0, 3, 6)
        ]
        assert len(set(updates)) == 3
        assert optimizer_steps(rows, config, 3) == optimizer_steps(rows, config, 3)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_packing_keeps_every_row_within_the_limit(lengths, limit):
    """Each row is in one micro-batch; only a single row that is longer exceeds the limit."""
    packed = pack([row(i, length) for i, length in enumerate(lengths)], limit)
    assert sorted(r.index for part in packed for r in part) == list(range(len(lengths)))
    assert all(len(part) == 1 or unique_tokens([r.input_ids for r in part]) <= limit for part in packed)


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


def prompted(index, prompt, answer, *, group=0):
    """A row that was sampled after its prompt."""
    whole = [*prompt, *answer]
    positions = list(range(len(prompt) - 1, len(whole) - 1))
    return Row(index, group, index, whole[:-1], positions, answer, [0.0] * len(answer), [1.0] * len(answer))


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=5), st.integers(1, 3)), min_size=1, max_size=4)
)
def test_the_shared_prefix_is_common_to_all_prompts(prompts):
    """The prefix contains no sampled token and not the position that predicts the first one."""
    rows = [prompted(i, prompt, [9] * length) for i, (prompt, length) in enumerate(prompts)]
    shared = shared_prefix(rows)
    assert len({tuple(row.input_ids[:shared]) for row in rows}) == 1
    assert shared < min(len(prompt) for prompt, _ in prompts)
    longest = min(len(prompt) for prompt, _ in prompts) - 1
    assert shared == longest or len({row.input_ids[shared] for row in rows}) > 1


@pytest.mark.parametrize(("rollouts", "steps"), [(1, 1), (31, 1), (64, 2), (130, 4), (10_000, 16)])
def test_the_usual_number_of_steps_follows_the_rollouts(rollouts, steps):
    """One optimizer step for each 32 rollouts, at most 16."""
    assert usual_steps([row(index, 3, group=index) for index in range(rollouts)]) == steps
