"""Policy gradients: GRPO, and its siblings, each of which replaces some of its factors.

The clip range of GRPO and Lite PPO is DAPO's, which leaves unlikely tokens more room to grow; the paper of GRPO has 0.2
both ways. Groups of equal rewards are left out whatever the algorithm.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

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


def centred(returns: Returns) -> Tensor:
    """Give r - mean."""
    return returns.minus(returns.mean)


def constant(tokens_R: Tensor, max_completion_length: int) -> Tensor:
    """The sum over tokens, divided by the same number whatever the lengths: 1 / (R · max_completion_length)."""
    return torch.full_like(tokens_R, 1 / (len(tokens_R) * max_completion_length))


DR_GRPO = replace(
    GRPO,
    name="dr_grpo",
    summary="GRPO without the divisions by standard deviation and by length, which bias it.",
    paper="arXiv 2503.20783",
    advantage=Advantage(centred),
    aggregation=constant,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.2},
)


def token_mean(tokens_R: Tensor, max_completion_length: int) -> Tensor:  # noqa: ARG001 - the signature of an aggregation
    """The mean over all tokens of the optimizer step: 1 / Σ tokens."""
    return torch.ones_like(tokens_R) / tokens_R.sum()


DAPO = replace(
    GRPO,
    name="dapo",
    summary="GRPO with a mean over all tokens; truncated rollouts carry no loss.",
    paper="arXiv 2503.14476",
    aggregation=token_mean,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.28, "mask_truncated_completions": True},
)

LITE_PPO = replace(
    GRPO,
    name="lite_ppo",
    summary="The default: subtracts the mean of the group and divides by the standard deviation of the batch.",
    paper="arXiv 2508.08221",
    advantage=Advantage(centred),
    aggregation=token_mean,
    defaults={"normalize_advantages": True, "epsilon": 0.2, "epsilon_high": 0.28},
)


def leave_one_out(returns: Returns) -> Tensor:
    """Give r - mean of the other rollouts, which for rewards is R/(R-1) · (r - mean)."""
    means_R = returns.means_R
    others_R = (means_R.sum() - means_R) / (len(means_R) - 1)
    return returns.minus(returns.spread(others_R))


# A rollout is one action, whose log probability is the sum over its tokens; so no length divides its loss.
RLOO = replace(
    GRPO,
    name="rloo",
    summary="REINFORCE with the mean of the other rollouts of the group as baseline.",
    paper="arXiv 2402.14740",
    advantage=Advantage(leave_one_out),
    aggregation=constant,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.2},
)


def whitened(returns: Returns) -> Tensor:
    """Give (r - mean) / std."""
    return returns.minus(returns.mean) / returns.std


# Its variant with the mean of the group as baseline has the advantages of `lite_ppo`.
REINFORCE_PP = replace(
    GRPO,
    name="reinforce_pp",
    summary="Standardises rewards over the whole batch; works with one rollout per example.",
    paper="arXiv 2501.03262",
    advantage=Advantage(whitened, among="batch"),
    aggregation=token_mean,
    defaults={"normalize_advantages": False, "epsilon": 0.2, "epsilon_high": 0.2},
)


def sequence(log_ratio_K: Tensor, row_K: Tensor, num_rows: int) -> Tensor:
    """The geometric mean of the ratios of a row's sampled tokens, for each of them.

    A row is one branch of a rollout, with all turns that extend each other token by token.
    """
    sum_N = log_ratio_K.new_zeros(num_rows).index_add(0, row_K, log_ratio_K)
    count_N = log_ratio_K.new_zeros(num_rows).index_add(0, row_K, torch.ones_like(log_ratio_K))
    return (sum_N / count_N.clamp(min=1))[row_K]


GSPO = replace(
    GRPO,
    name="gspo",
    summary="GRPO with one ratio for a whole sequence, clipped to a very narrow range; stable for mixtures of experts.",
    paper="arXiv 2507.18071",
    importance_sampling_level=sequence,
    defaults={"normalize_advantages": False, "epsilon": 3e-4, "epsilon_high": 4e-4},
)


def cispo(tokens: PolicyTokens) -> PolicyTerm:
    """Give sg(min(r, 1 + high)) · A · log π: the capped ratio is a weight, so no token loses its gradient."""
    ratio_K, cap = tokens.log_ratio_K.detach().exp(), 1 + tokens.epsilon_high
    return PolicyTerm(
        ratio_K.clamp(max=cap) * tokens.advantages_K * tokens.logprobs_K,
        clipped_low_K=torch.zeros_like(ratio_K, dtype=torch.bool),
        clipped_high_K=ratio_K > cap,
    )


CISPO = replace(
    GRPO,
    name="cispo",
    summary="Weighs tokens by their ratio, capped at 1 + epsilon_high; no token loses its gradient.",
    paper="arXiv 2506.13585",
    policy_loss=cispo,
    aggregation=token_mean,
    defaults={"normalize_advantages": False, "epsilon_high": 4.0},
)
