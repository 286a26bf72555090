"""DPO's options: which pairs of a group are compared, and what the smoothing does to the loss."""

from math import log1p

import pytest
import torch

from nat.backend.algorithms.algorithm import Completions
from nat.backend.algorithms.dpo import DpoOptions, KtoOptions, dpo_loss, kto_loss, pair_rule
from nat.preferences.pairs import PairRule


def test_the_options_choose_the_pairs():
    """Rewards must differ by the margin; of those that do, the largest differences are kept."""
    chosen = DpoOptions(margin=0.3, pairs="best_worst", max_pairs=2)
    assert pair_rule(chosen) == PairRule(margin=0.3, which="best_worst", most=2)
    assert pair_rule(DpoOptions()) == PairRule()


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


@pytest.mark.parametrize(
    ("better", "options", "expected"),
    [
        ([True, False, False, False], {}, (1 + 3 / 3) / 2 / 4),
        ([True, False, False, False], {"desirable_weight": 2.0}, (2 + 3 * 2 / 3) / 2 / 4),
        ([True, False, False, False], {"undesirable_weight": 1.0}, 1 / 2),
        ([True, True, True, False], {}, 1 / 2),
        ([False, False], {}, 1 / 2 / 2),
    ],
)
def test_many_undesirable_answers_weigh_as_much_as_few_desirable_ones(better, options, expected):
    """By default the undesirable ones weigh no more in all than the desirable ones, or than one; a set weight holds."""
    zeros = torch.zeros(
        len(better), dtype=torch.float64
    )  # the policy is the reference: each loss is 1/2 times its weight
    completions = Completions(zeros, zeros, zeros + 3, torch.tensor(better), 0.0, 0.1, KtoOptions(**options))
    assert float(kto_loss(completions)) == pytest.approx(expected)
