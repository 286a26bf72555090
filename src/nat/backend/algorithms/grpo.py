"""GRPO: rewards are standardised within their group, and every rollout weighs the same.

The clip range is DAPO's, which leaves unlikely tokens more room to grow; the paper has 0.2 both ways.

Shapes: as in algorithm.py.
"""

import torch
from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.algorithm import Algorithm, PolicyTerm, PolicyTokens

STD_EPSILON = 1e-4
"""Added to the standard deviation of a group, as in TRL."""


def standardised(returns: Returns) -> Tensor:
    """Give (r - mean) / (std + ε)."""
    return returns.minus(returns.mean) / (returns.std + STD_EPSILON)


def token(log_ratio_K: Tensor, row_K: Tensor, num_rows: int) -> Tensor:  # noqa: ARG001 - the signature of a level
    """One ratio for each token."""
    return log_ratio_K


def clip(tokens: PolicyTokens) -> PolicyTerm:
    """PPO's objective: the smaller of rA and r'A, where r' is r clipped to [1 - low, 1 + high]."""
    ratio_K, advantages_K = tokens.log_ratio_K.exp(), tokens.advantages_K
    low, high = 1 - tokens.epsilon, 1 + tokens.epsilon_high
    return PolicyTerm(
        torch.minimum(ratio_K * advantages_K, ratio_K.clamp(low, high) * advantages_K),
        clipped_low_K=(ratio_K < low) & (advantages_K < 0),
        clipped_high_K=(ratio_K > high) & (advantages_K > 0),
    )


def seq_mean(tokens_R: Tensor, max_completion_length: int) -> Tensor:  # noqa: ARG001 - the signature of an aggregation
    """The mean over rollouts of the means over their tokens: 1 / (R · tokens of the rollout)."""
    return 1 / (len(tokens_R) * tokens_R)


GRPO = Algorithm(
    name="grpo",
    summary="Standardises rewards within their group; every rollout weighs the same.",
    paper="arXiv 2402.03300",
    advantage=Advantage(standardised),
    importance_sampling_level=token,
    policy_loss=clip,
    aggregation=seq_mean,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.28},
)
