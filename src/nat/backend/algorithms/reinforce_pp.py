"""REINFORCE++: rewards are standardised over the whole batch, so a group may have a single rollout.

Its variant with the mean of the group as baseline has the advantages of `lite_ppo`.
"""

from dataclasses import replace

from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.dapo import token_mean
from nat.backend.algorithms.grpo import GRPO


def whitened(returns: Returns) -> Tensor:
    """Give (r - mean) / std."""
    return returns.minus(returns.mean) / returns.std


REINFORCE_PP = replace(
    GRPO,
    name="reinforce_pp",
    summary="Standardises rewards over the whole batch; works with one rollout per example.",
    paper="arXiv 2501.03262",
    advantage=Advantage(whitened, among="batch"),
    aggregation=token_mean,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.2},
)
