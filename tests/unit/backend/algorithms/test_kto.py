"""KTO's loss weighs answers that are desirable against those that are not."""

import pytest
import torch

from nat.backend.algorithms.algorithm import Completions
from nat.backend.algorithms.kto import KtoOptions, kto_loss


def loss(better: list[bool], **options: float) -> float:
    """The loss where the policy is the reference, so that each completion has a loss of 1/2 times its weight."""
    zeros = torch.zeros(len(better), dtype=torch.float64)
    given = KtoOptions(**options)
    return float(kto_loss(Completions(zeros, zeros, zeros + 3, torch.tensor(better), 0.0, 0.1, given)))


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
    assert loss(better, **options) == pytest.approx(expected)
