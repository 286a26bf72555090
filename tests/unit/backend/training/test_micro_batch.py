"""Optimizer steps and micro-batches hold every row once and count shared prompts once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.training.batch import Row
from nat.backend.training.micro_batch import optimizer_steps, pack, shared_prefix, usual_steps
from nat.backend.tree_attention import PackedTree, unique_tokens
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


def test_rows_that_are_computed_one_by_one_count_their_shared_tokens():
    """On the plain path a micro-batch is full when its rows are, whatever they have in common."""
    rows = [row(i, 20) for i in range(6)]
    assert [len(part) for part in pack(rows, 50)] == [6]
    assert [len(part) for part in pack(rows, 50, shares=False)] == [2, 2, 2]
    assert PackedTree([r.input_ids for r in rows]).num_row_tokens == 120


def test_a_full_micro_batch_takes_only_rows_that_share_much():
    """`enough` tokens end a micro-batch, unless the next row would compute more than an eighth of them again."""

    def sizes(prefix):
        rows = [replace(row(i, 40), input_ids=[1] * prefix + [2 + i] * (40 - prefix)) for i in range(6)]
        return [len(part) for part in pack(rows, 150, enough=80)]

    assert sizes(10) == [2, 2, 2]
    assert sizes(11) == [4, 2]


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


def test_a_group_stays_in_one_step():
    """Rollouts of a group change the weights together; the order of groups depends on the seed."""
    rows = [row(i, 3, group=i % 2) for i in range(8)]
    for seed in range(5):
        steps = optimizer_steps(rows, TrainingConfig(tokens_per_step=16, seed=seed))
        assert [{r.group for r in step} for step in steps] in ([{0}, {1}], [{1}, {0}])
    orders = {
        tuple(r.index for step in optimizer_steps(rows, TrainingConfig(tokens_per_step=16, seed=s)) for r in step)
        for s in range(5)
    }
    assert len(orders) > 1


def test_number_and_size_of_steps_exclude_each_other():
    """Setting both the number and the size of the steps is an error."""
    with pytest.raises(ValueError, match="tokens_per_step 5 and steps_per_batch 2"):
        TrainingConfig(tokens_per_step=5, steps_per_batch=2)


def prompted(index, prompt, answer, *, group=0):
    """A row that was sampled after its prompt."""
    whole = [*prompt, *answer]
    positions = list(range(len(prompt) - 1, len(whole) - 1))
    return Row(index, group, index, whole[:-1], positions, answer, [0.0] * len(answer), [1.0] * len(answer))


def test_a_shared_prompt_is_counted_once():
    """Four answers of 10 tokens to one prompt of 100 need 99 + 4 · 11 tokens; another group has its own prompt."""
    rows = [prompted(i, [7] * 100, [i] * 10) for i in range(4)]
    assert shared_prefix(rows) == 99
    assert len(optimizer_steps(rows, TrainingConfig(tokens_per_step=143))) == 1
    assert sorted(map(len, optimizer_steps(rows, TrainingConfig(tokens_per_step=142)))) == [1, 3]
    rows.append(prompted(4, [8] * 100, [4] * 10, group=1))
    assert len(optimizer_steps(rows, TrainingConfig(tokens_per_step=143 + 109))) == 2
    assert len(optimizer_steps(rows, TrainingConfig(tokens_per_step=143 + 110))) == 1


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
