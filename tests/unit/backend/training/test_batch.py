"""From groups to rows, to micro-batches and to optimizer steps."""

from hypothesis import given
from hypothesis import strategies as st

from nat.backend.training.batch import Row, make_batch, sampled_tokens_per_rollout
from nat.backend.training.packing import deal, pack
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow


def rollout(reward, *rows, truncated=False):
    made = [TrainingRow(token_ids=list(range(10, 10 + len(row))), logprobs=row) for row in rows]
    return TrainingRollout(reward=reward, rows=made, truncated=truncated)


def row(index, length, group=0):
    return Row(index, group, index, [0] * length, [0], [0], [0.0], 1.0)


def test_a_row_ends_with_its_last_sampled_token():
    """Targets are the sampled tokens, each predicted one place before; what follows the last is not computed."""
    groups = [
        TrainingGroup(
            id="a", rollouts=[rollout(1, [None, None, -0.5, None, -0.25, None, None]), rollout(0, [None, -1.0])]
        )
    ]
    first = make_batch(groups, TrainingConfig()).rows[0]
    assert first.input_ids == [10, 11, 12, 13]
    assert (first.positions, first.targets, first.sampler_logprobs) == ([1, 3], [12, 14], [-0.5, -0.25])


def test_rows_of_a_rollout_share_its_advantage_and_weigh_together():
    """A rollout in two rows is one rollout: one advantage, and its tokens are counted over both."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, -1.0], [None, -1.0, -1.0]), rollout(0, [None, -1.0])])]
    rows = make_batch(groups, TrainingConfig(normalize_advantages=False)).rows
    assert [r.advantage for r in rows] == [0.5, 0.5, -0.5]
    assert sampled_tokens_per_rollout(rows) == {0: 3, 1: 1}


def test_truncated_rollouts_can_be_masked():
    """Masked rollouts leave the loss, but their reward stays in the comparison."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, -1.0]), rollout(0, [None, -1.0], truncated=True)])]
    kept = make_batch(groups, TrainingConfig(mask_truncated_completions=True, normalize_advantages=False))
    assert [r.advantage for r in kept.rows] == [0.5]
    assert kept.truncated_share == 0.5
    assert len(make_batch(groups, TrainingConfig()).rows) == 2


def test_rows_without_sampled_tokens_are_left_out():
    """They can carry no loss; they still count as tokens that came in."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, None], [None, -1.0]), rollout(0, [None, -1.0])])]
    batch = make_batch(groups, TrainingConfig())
    assert len(batch.rows) == 2
    assert batch.raw_tokens == 6


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_packing_keeps_every_row_within_the_limit(lengths, limit):
    """Each row is in one micro-batch; none exceeds the limit, except by a single row that is longer."""
    packed = pack([row(i, length) for i, length in enumerate(lengths)], limit)
    assert sorted(r.index for part in packed for r in part) == list(range(len(lengths)))
    assert all(len(part) == 1 or sum(len(r.input_ids) for r in part) <= limit for part in packed)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3))
def test_every_pass_deals_out_every_group_once(groups, passes, steps, seed):
    """Steps are even to one group, none is empty, and the same seed deals the same way."""
    rows = [row(i, 3, group=i // 2) for i in range(2 * groups)]
    dealt = deal(rows, passes=passes, steps_per_pass=steps, seed=seed)
    per_pass = min(steps, groups)
    assert len(dealt) == passes * per_pass
    for number in range(passes):
        hands = [{r.group for r in hand} for hand in dealt[number * per_pass : (number + 1) * per_pass]]
        assert sorted(g for hand in hands for g in hand) == list(range(groups))
        assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert dealt == deal(rows, passes=passes, steps_per_pass=steps, seed=seed)
