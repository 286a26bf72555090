"""Imitation: the cross entropy of every token to learn from, or of those of the best rollouts of each group alone.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.algorithm import Algorithm, PolicyTerm, PolicyTokens
from nat.backend.algorithms.grpo import token, token_mean

RATIO_SETTINGS = frozenset(
    {
        "normalize_advantages",
        "importance_sampling_level",
        "old_logprobs",
        "policy_loss",
        "epsilon",
        "epsilon_high",
        "kl_penalty_coef",
        "kl_penalty_source",
        "importance_sampling_cap",
    }
)
"""What an algorithm without a ratio of probabilities does not use."""


def ones(returns: Returns) -> Tensor:
    """Give 1, whatever the returns."""
    return torch.ones_like(returns.values_C)


def log_likelihood(tokens: PolicyTokens) -> PolicyTerm:
    """Give A · log π."""
    nowhere = torch.zeros_like(tokens.advantages_K, dtype=torch.bool)
    return PolicyTerm(tokens.advantages_K * tokens.logprobs_K, clipped_low_K=nowhere, clipped_high_K=nowhere)


SFT = Algorithm(
    name="sft",
    summary="Imitates every rollout, whatever its reward: the cross entropy of the assistant's tokens.",
    paper="arXiv 2203.02155",
    advantage=Advantage(ones, among="nothing"),
    importance_sampling_level=token,
    policy_loss=log_likelihood,
    aggregation=token_mean,
    defaults={"normalize_advantages": False, "importance_sampling_cap": None},
    unused=RATIO_SETTINGS | {"advantage"},
    needs_logprobs=False,
)


def best(returns: Returns) -> Tensor:
    """Give 1 for the rollouts with the highest mean return, all of them if several have it, and 0 for the others."""
    means_R = returns.means_R
    return returns.spread((means_R == means_R.max()).to(means_R.dtype))


RFT = replace(
    SFT,
    name="rft",
    summary="Rejection sampling: imitates the rollouts with the highest reward of their group.",
    paper="arXiv 2308.01825",
    advantage=Advantage(best),
    needs_advantage=True,
)
