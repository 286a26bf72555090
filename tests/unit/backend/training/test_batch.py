"""Groups of a job become rows with advantages."""

import pytest

from fakes.training_rows import row_of
from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import make_batch, sampled_tokens_per_rollout
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout


def rollout(reward, *rows, truncated=False):
    made = [row_of(range(10, 10 + len(row)), row) for row in rows]
    return TrainingRollout(reward=reward, rows=made, truncated=truncated)


def test_a_row_ends_with_its_last_sampled_token():
    """Each target is a sampled token, predicted one position earlier; tokens after the last one are not computed."""
    groups = [
        TrainingGroup(
            id="a", rollouts=[rollout(1, [None, None, -0.5, None, -0.25, None, None]), rollout(0, [None, -1.0])]
        )
    ]
    first = make_batch(groups, resolve(TrainingConfig())).rows[0]
    assert first.input_ids == [10, 11, 12, 13]
    assert (first.positions, first.targets, first.sampler_logprobs) == ([1, 3], [12, 14], [-0.5, -0.25])


def test_rows_of_a_rollout_share_its_advantage_and_weigh_together():
    """A rollout in two rows has one advantage, and its tokens are counted over both rows."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, -1.0], [None, -1.0, -1.0]), rollout(0, [None, -1.0])])]
    rows = make_batch(groups, resolve(TrainingConfig(normalize_advantages=False))).rows
    assert [r.advantages for r in rows] == [[0.5], [0.5, 0.5], [-0.5]]
    assert sampled_tokens_per_rollout(rows) == {0: 3, 1: 1}


def test_truncated_rollouts_can_be_masked():
    """Masked rollouts leave the loss, but their rewards still count in the comparison."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, -1.0]), rollout(0, [None, -1.0], truncated=True)])]
    kept = make_batch(groups, resolve(TrainingConfig(mask_truncated_completions=True, normalize_advantages=False)))
    assert [r.advantages for r in kept.rows] == [[0.5]]
    assert kept.truncated_share == 0.5
    assert len(make_batch(groups, resolve(TrainingConfig())).rows) == 2


def test_given_advantages_and_weights_reach_the_rows():
    """All rows of a rollout have its given advantage and weight."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(0, [None, -1.0], [None, -2.0]), rollout(0, [None, -1.0])])]
    for r, (advantage, weight) in zip(groups[0].rollouts, [(2.0, 0.5), (-1.0, 3.0)], strict=True):
        r.advantage, r.weight = advantage, weight
    rows = make_batch(groups, resolve(TrainingConfig(advantage="given", normalize_advantages=False))).rows
    assert [(r.advantages, r.weight) for r in rows] == [([2.0], 0.5), ([2.0], 0.5), ([-1.0], 3.0)]


def with_returns(reward, *rows):
    """Each row as pairs of an answer's number of tokens and its return, with a prompt token before each answer."""
    made = []
    for answers in rows:
        logprobs = [logprob for count, _ in answers for logprob in [None, *([-1.0] * count)]]
        made.append(row_of(range(len(logprobs)), logprobs, values=[value for _, value in answers]))
    return TrainingRollout(reward=reward, rows=made)


def test_each_token_has_the_advantage_of_its_answer():
    """Rollouts of mean 2 and 0 have the mean 1, with which all answers of all rows are compared."""
    groups = [TrainingGroup(id="a", rollouts=[with_returns(9, [(2, 3), (1, 0)], [(1, 3)]), rollout(0, [None, -1.0])])]
    rows = make_batch(groups, resolve(TrainingConfig(normalize_advantages=False))).rows
    assert [r.advantages for r in rows] == [[2.0, 2.0, -1.0], [2.0], [-1.0]]
    assert [len(r.targets) for r in rows] == [3, 1, 1]


def test_all_spans_of_a_rollout_have_a_value_or_none():
    """Returns of only some answers are ambiguous and refused."""
    with_them = with_returns(0, [(2, 3), (1, 0)]).rows[0]
    without = rollout(0, [None, -1.0]).rows[0]
    with pytest.raises(ValueError, match="2 of 3 spans have a value"):
        TrainingRollout(reward=0, rows=[with_them, without])
