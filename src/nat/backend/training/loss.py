"""The loss kernel: pure functions over log probabilities, advantages and weights of sampled tokens.

Each choice is a factor of its own: the advantage (advantages.py), the level of the ratio, the policy term, the
aggregation (a weight per token that sums to the denominator of the whole optimizer step), the KL term, the
correction for the sampler. The loss of an optimizer step is

    loss = - Σ_k weight_k · w_k · (policy_k - β · kl_k)

over all of its sampled tokens k, so that any split into micro-batches sums to the same gradient.

Shapes: K sampled tokens of a micro-batch, N its rows, R the rollouts of an optimizer step.
"""

from typing import Literal

import torch
from torch import Tensor

RatioLevel = Literal["token", "sequence"]
PolicyLoss = Literal["clip", "cispo"]
Aggregation = Literal["token_mean", "seq_mean", "constant"]

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to this before exp, so that one absurd token cannot make the loss infinite."""


def log_ratios(logprobs_K: Tensor, old_logprobs_K: Tensor, row_K: Tensor, num_rows: int, level: RatioLevel) -> Tensor:
    """Give log π/π_old per token, or its mean over the row's sampled tokens (GSPO, arXiv 2507.18071).

    A row is one branch of a rollout: the turns that extend each other token by token.
    """
    log_ratio_K = logprobs_K - old_logprobs_K
    if level == "token":
        return log_ratio_K.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    sum_N = log_ratio_K.new_zeros(num_rows).index_add(0, row_K, log_ratio_K)
    count_N = log_ratio_K.new_zeros(num_rows).index_add(0, row_K, torch.ones_like(log_ratio_K))
    return (sum_N / count_N.clamp(min=1))[row_K].clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def policy_term(
    log_ratio_K: Tensor, logprobs_K: Tensor, advantages_K: Tensor, kind: PolicyLoss, *, low: float, high: float
) -> Tensor:
    """Give the objective per token, to be maximised.

    clip: min(rA, clip(r, 1 - low, 1 + high) A) with r = π/π_old. cispo (arXiv 2506.13585):
    sg(min(r, 1 + high)) · A · log π, where no token loses its gradient.
    """
    ratio_K = log_ratio_K.exp()
    if kind == "cispo":
        return ratio_K.detach().clamp(max=1 + high) * advantages_K * logprobs_K
    return torch.minimum(ratio_K * advantages_K, ratio_K.clamp(1 - low, 1 + high) * advantages_K)


def clipped(
    log_ratio_K: Tensor, advantages_K: Tensor, kind: PolicyLoss, *, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Tell which tokens lost their gradient (clip) or had their weight capped (cispo), at the low and the high end."""
    ratio_K = log_ratio_K.exp()
    if kind == "cispo":
        return torch.zeros_like(ratio_K, dtype=torch.bool), ratio_K > 1 + high
    return (ratio_K < 1 - low) & (advantages_K < 0), (ratio_K > 1 + high) & (advantages_K > 0)


def kl_term(logprobs_K: Tensor, reference_K: Tensor, old_logprobs_K: Tensor) -> Tensor:
    """Estimate KL(π‖π_ref) per token as r · k3, with r = π/π_old at token level.

    k3 = e^-d - 1 + d with d = log π - log π_ref has a low variance but, differentiated alone, the wrong gradient.
    Times the ratio, which is differentiated too, the gradient is r · d · ∇log π: that of the KL itself (TRL's
    `use_bias_correction_kl`).
    """
    ratio_K = (logprobs_K - old_logprobs_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return ratio_K * k3(logprobs_K - reference_K)


def k3(difference_K: Tensor) -> Tensor:
    """Give e^-d - 1 + d ≥ 0, whose mean under p estimates KL(p‖q) for d = log p - log q."""
    difference_K = difference_K.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.expm1(-difference_K) + difference_K


def sampler_weights(old_logprobs_K: Tensor, sampler_logprobs_K: Tensor, cap: float | None) -> Tensor:
    """Truncated importance sampling: min(π_old/μ, cap) per token, or ones for no correction."""
    if cap is None:
        return torch.ones_like(old_logprobs_K)
    log_weight_K = (old_logprobs_K - sampler_logprobs_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_weight_K.exp().clamp(max=cap)


def rollout_weights(tokens_R: Tensor, aggregation: Aggregation, *, max_completion_length: int) -> Tensor:
    """Give the weight of one token of each rollout, from the sampled tokens of every rollout of the optimizer step.

    token_mean: 1/Σ tokens. seq_mean: 1/(R · tokens of the rollout). constant: 1/(R · max_completion_length). All
    rows of a rollout use its weight, so a rollout that was cut into many rows weighs as one.
    """
    tokens_R = tokens_R.to(torch.float64)
    if aggregation == "token_mean":
        return torch.ones_like(tokens_R) / tokens_R.sum()
    if aggregation == "seq_mean":
        return 1 / (len(tokens_R) * tokens_R)
    return torch.full_like(tokens_R, 1 / (len(tokens_R) * max_completion_length))
