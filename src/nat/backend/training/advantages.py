"""Turn the rewards of a batch into one advantage per rollout.

Formulas: GRPO (arXiv 2402.03300), Dr.GRPO (2503.20783), RLOO (2402.14740), REINFORCE++ (2501.03262). Standard
deviations are those of a sample (n - 1), as in TRL. An advantage belongs to a rollout: all of its rows share
it, however many rows it was cut into.

Shapes: R rollouts of the batch, or of one group where a function says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Advantage = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp"]

GRPO_EPSILON = 1e-4
"""Added to the standard deviation of a group, as in TRL."""
EQUAL_UP_TO = 1e-9
"""Rewards whose spread is below this share of their size are equal; what is left is rounding."""


@dataclass(frozen=True)
class BatchAdvantages:
    """One advantage per rollout, and which groups carry a signal."""

    groups: list[Tensor]
    """Per group, the advantages of its rollouts (float64); all zero where the group carries no signal."""
    has_signal: list[bool]
    """Per group; a group without is left out of the loss and of its denominator."""
    zero_variance: list[bool]
    """Per group: all of its rewards are equal."""


def batch_advantages(rewards: Sequence[Sequence[float]], method: Advantage, *, normalize: bool) -> BatchAdvantages:
    """Give each rollout its advantage; `rewards` holds one sequence per group.

    Groups of equal rewards say nothing about better or worse and are left out, except with `reinforce_pp`,
    which compares with the whole batch. `normalize` divides by the standard deviation of the advantages of all
    rollouts that are left in.
    """
    groups = [torch.tensor(list(group), dtype=torch.float64) for group in rewards]
    zero_variance = [_all_equal(group_R) for group_R in groups]
    if method == "reinforce_pp":
        has_signal = [not _all_equal(torch.cat(groups))] * len(groups)
        advantages = _whiten(groups) if all(has_signal) else groups
    else:
        has_signal = [not equal for equal in zero_variance]
        advantages = [
            group_advantages(group_R, method) if keep else group_R
            for group_R, keep in zip(groups, has_signal, strict=True)
        ]
    kept = [advantage_R for advantage_R, keep in zip(advantages, has_signal, strict=True) if keep]
    scale = torch.cat(kept).std() if normalize and kept else torch.ones((), dtype=torch.float64)
    return BatchAdvantages(
        groups=[
            a_R / scale if keep else torch.zeros_like(a_R) for a_R, keep in zip(advantages, has_signal, strict=True)
        ],
        has_signal=has_signal,
        zero_variance=zero_variance,
    )


def group_advantages(rewards_R: Tensor, method: Literal["grpo", "dr_grpo", "rloo"]) -> Tensor:
    """Compare the rollouts of one group, which has at least two of them.

    grpo: (r - mean) / (std + ε). dr_grpo: r - mean. rloo: r - mean of the others = R/(R-1) · (r - mean).
    """
    centred_R = rewards_R - rewards_R.mean()
    if method == "grpo":
        return centred_R / (rewards_R.std() + GRPO_EPSILON)
    if method == "rloo":
        count = len(rewards_R)
        return centred_R * (count / (count - 1))
    return centred_R


def _whiten(groups: list[Tensor]) -> list[Tensor]:
    rewards_R = torch.cat(groups)
    mean, std = rewards_R.mean(), rewards_R.std()
    return [(group_R - mean) / std for group_R in groups]


def _all_equal(rewards_R: Tensor) -> bool:
    spread = rewards_R.max() - rewards_R.min()
    return bool(spread <= EQUAL_UP_TO * rewards_R.abs().max())
