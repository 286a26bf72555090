"""An update's metrics match their definitions in `docs/update_metrics.py`."""

from math import exp, log

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import Row
from nat.backend.training.metrics import TokenSums, TokenValues
from nat.backend.training.mismatch import policy_shift
from nat.wire.training import TrainingConfig, TrainingGroup


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_means_over_tokens():
    """Means of four tokens in two micro-batches are means over all four."""
    now, start, sampler = tensor(-1.0, -2.0, -0.5, -1.5), tensor(-1.1, -2.0, -0.5, -1.0), tensor(-1.0, -2.0, -0.9, -1.0)
    sums = TokenSums(torch.device("cpu"))
    for part in (slice(0, 3), slice(3, 4)):
        values = TokenValues(
            logprobs_K=now[part],
            start_logprobs_K=start[part],
            sampler_logprobs_K=sampler[part],
            sampled_K=torch.ones_like(sampler[part], dtype=torch.bool),
            reference_K=(now - log(2))[part],
            teacher_gap_K=None,
            entropy_K=tensor(0.5, 1.5, 1.0, 2.0)[part],
            advantages_K=tensor(1.0, 0.0, -1.0, 0.0)[part],
            clipped_low_K=torch.tensor([False, False, True, False])[part],
            clipped_high_K=torch.tensor([True, False, False, True])[part],
            policy_loss=tensor(0.0),
        )
        sums.add(values)
    ratios = [1.0, 1.0, exp(0.4), exp(-0.5)]
    k3 = sum(exp(-d) - 1 + d for d in (0.1, 0.0, -0.4, 0.0)) / 4
    assert sums.means() == pytest.approx(
        {
            "entropy": 1.25,
            "advantage_size": 0.5,
            "clip_fraction_low": 0.25,
            "clip_fraction_high": 0.5,
            "logprob_diff_mean": (0.1 + 0.4) / 4,
            "logprob_diff_max": 0.4,
            "sampler_kl": k3,
            "reference_kl": 0.5 - 1 + log(2),
            "effective_sample_size": sum(ratios) ** 2 / (4 * sum(r * r for r in ratios)),
        }
    )
    assert (sums.with_advantage, sums.clipped) == (0.5, 0.75)


def test_counts_cover_tokens_with_loss(make_learner, loaded):
    """One of two groups is flat; of the other, two rows per rollout are counted up to the last sampled token."""
    groups = random_groups(loaded, groups=2, rollouts=2, rows=2)
    groups[0] = TrainingGroup(id="flat", rollouts=[r.model_copy(update={"reward": 0.5}) for r in groups[0].rollouts])
    groups[1].rollouts[0].truncated = True
    metrics = make_learner(loaded).update(groups, resolve(TrainingConfig(learning_rate=1e-4, steps_per_batch=4)))
    rows = [row for rollout in groups[1].rollouts for row in rollout.rows]
    assert (metrics["trained_groups"], metrics["trained_rollouts"], metrics["trained_rows"]) == (1, 2, 4)
    assert metrics["trained_tokens"] == sum(row.num_sampled for row in rows)
    assert metrics["row_tokens"] == sum(len(row.token_ids) - 1 for row in rows)
    assert (metrics["truncated_fraction"], metrics["zero_advantages"]) == (0.25, 0.5)
    assert metrics["kl_per_step"] == metrics["approx_kl"] > 0
    assert metrics["usual_learning_rate"] > metrics["learning_rate"] > 0
    assert (metrics["optimizer_steps"], metrics["skipped_steps"], metrics["policy_step"]) == (1, 0, 1)


def test_only_moves_against_the_advantage_count_as_unasked():
    """Good tokens that fall, bad ones that rise, and what moves without an advantage; without any, everything."""
    row = Row(0, 0, 0, [5] * 5, [0, 1, 2, 3, 4], [5] * 5, [0.0] * 5, [1.0, 1.0, -1.0, -1.0, 0.0])
    before, after = {0: torch.zeros(5)}, {0: torch.tensor([0.5, -0.5, 0.5, -0.5, 0.5])}
    up, down = exp(0.5) - 1.5, exp(-0.5) - 0.5
    shift = policy_shift([row], before, after)
    assert shift.kl == pytest.approx((3 * up + 2 * down) / 5)
    assert shift.unasked == pytest.approx((down + 2 * up) / 5)
    assert policy_shift([row], before, after, advantages=False).unasked == pytest.approx(shift.kl)
