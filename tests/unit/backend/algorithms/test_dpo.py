"""DPO's options: which pairs of a group are compared, and what the smoothing does to the loss."""

from math import log1p

import pytest
import torch

from nat.backend.algorithms.algorithm import Completions
from nat.backend.algorithms.dpo import DpoOptions, dpo_loss, pairs_of_group


def test_margin_and_max_pairs_choose_the_pairs():
    """Rewards must differ by more than the margin; of those that do, the largest differences are kept."""
    rewards = [1.0, 0.5, 0.4]
    assert len(pairs_of_group(rewards, DpoOptions())) == 3
    assert set(pairs_of_group(rewards, DpoOptions(margin=0.3))) == {(0, 1), (0, 2)}
    assert list(pairs_of_group(rewards, DpoOptions(max_pairs=1))) == [(0, 2)]


def test_smoothing_weighs_the_wrong_way_round():
    """Where the policy is the reference both ways cost log 2, so a share of each costs it, too."""
    zeros = torch.zeros(2, dtype=torch.float64)
    better = torch.tensor([True, False])

    def loss(smoothing, logprobs):
        options = DpoOptions(label_smoothing=smoothing, sft_loss_weight=0)
        return float(dpo_loss(Completions(logprobs, zeros, zeros + 3, better, 0.0, 0.1, options)))

    assert loss(0.3, zeros) == pytest.approx(log1p(1))
    margin = torch.tensor([10.0, -10.0], dtype=torch.float64)  # β times the difference is 2
    right, wrong = log1p(2.718281828459045**-2), log1p(2.718281828459045**2)
    assert loss(0.3, margin) == pytest.approx(0.7 * right + 0.3 * wrong)
