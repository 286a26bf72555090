"""RLOO: the baseline of a rollout is the mean of the others in its group.

A rollout is one action, whose log probability is the sum over its tokens; so no length divides its loss.
"""

from dataclasses import replace

from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.dr_grpo import constant
from nat.backend.algorithms.grpo import GRPO


def leave_one_out(returns: Returns) -> Tensor:
    """Give r - mean of the other rollouts, which for rewards is R/(R-1) · (r - mean)."""
    means_R = returns.means_R
    others_R = (means_R.sum() - means_R) / (len(means_R) - 1)
    return returns.minus(returns.spread(others_R))


RLOO = replace(
    GRPO,
    name="rloo",
    summary="REINFORCE with the mean of the other rollouts of the group as baseline.",
    paper="arXiv 2402.14740",
    advantage=Advantage(leave_one_out),
    aggregation=constant,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.2},
)
