"""The loss kernel: pure functions over log probabilities, advantages and weights of sampled tokens.

Each choice is a factor of its own: the advantage (advantages.py), the level of the ratio and its bounds, the policy
term, the aggregation (a weight per token that sums to the denominator of the whole optimizer step), the KL term or
penalty, the correction for the sampler. The loss of an optimizer step is

    loss = - Σ_k weight_k · w_k · (policy_k - β · kl_k)

over all of its sampled tokens k, so that any split into micro-batches sums to the same gradient.

Shapes: K sampled tokens of a micro-batch, N its rows, R the rollouts of an optimizer step.
"""

import math

import torch
from torch import Tensor

from nat.wire.training import Aggregation, PolicyLoss, RatioLevel

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to this before exp, so that one absurd token cannot make the loss infinite."""


def log_ratios(logprobs_K: Tensor, old_logprobs_K: Tensor, row_K: Tensor, num_rows: int, level: RatioLevel) -> Tensor:
    """Give the log of the ratio π/π_old per token, or of its geometric mean over the row's sampled tokens.

    The latter is GSPO's (arXiv 2507.18071). average and geometric_average: the mean of the two ratios, as said. A
    row is one branch of a rollout: the turns that extend each other token by token.
    """
    token_K = logprobs_K - old_logprobs_K
    if level == "token":
        return token_K.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    sum_N = token_K.new_zeros(num_rows).index_add(0, row_K, token_K)
    count_N = token_K.new_zeros(num_rows).index_add(0, row_K, torch.ones_like(token_K))
    log_ratio_K = (sum_N / count_N.clamp(min=1))[row_K]
    if level == "average":
        log_ratio_K = torch.logaddexp(token_K, log_ratio_K) - math.log(2)
    elif level == "geometric_average":
        log_ratio_K = (token_K + log_ratio_K) / 2
    return log_ratio_K.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def bounded_ratios(
    log_ratio_K: Tensor, advantages_K: Tensor, *, negative_cap: float | None, mask: bool, low: float, high: float
) -> Tensor:
    """Give the ratio, capped where the advantage is negative, and with `mask` zero outside of the clip range."""
    ratio_K = log_ratio_K.exp()
    if negative_cap is not None:
        ratio_K = torch.where(advantages_K < 0, ratio_K.clamp(max=negative_cap), ratio_K)
    return ratio_K.where((ratio_K > 1 - low) & (ratio_K < 1 + high), 0.0) if mask else ratio_K


def policy_term(
    ratio_K: Tensor, logprobs_K: Tensor, advantages_K: Tensor, kind: PolicyLoss, *, low: float, high: float
) -> Tensor:
    """Give the objective per token, to be maximised; r is the ratio, which is zero for a token that is masked.

    clip: min(rA, clip(r, 1 - low, 1 + high) A). cispo (arXiv 2506.13585): sg(min(r, 1 + high)) · A · log π, where no
    token loses its gradient. cispo_two_sided: sg(clip(r, 1 - low, 1 + high)) · A · log π.
    """
    clipped_K = ratio_K.clamp(1 - low, 1 + high)
    if kind == "clip":
        objective_K = torch.minimum(ratio_K * advantages_K, clipped_K * advantages_K)
    else:
        weight_K = clipped_K if kind == "cispo_two_sided" else ratio_K.clamp(max=1 + high)
        objective_K = weight_K.detach() * advantages_K * logprobs_K
    return objective_K.where(ratio_K > 0, 0.0)


def clipped(
    ratio_K: Tensor, advantages_K: Tensor, kind: PolicyLoss, *, mask: bool, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Tell which tokens the clip range touched, at its low and its high end.

    They lost their gradient (clip, or any kind with `mask`), or had their weight bounded (cispo).
    """
    low_K, high_K = ratio_K < 1 - low, ratio_K > 1 + high
    if mask or kind == "cispo_two_sided":
        return low_K, high_K
    if kind == "cispo":
        return torch.zeros_like(low_K), high_K
    return low_K & (advantages_K < 0), high_K & (advantages_K > 0)


def kl_penalty(start_K: Tensor, reference_K: Tensor) -> Tensor:
    """Give mean(d) - d with d = log π_start - log π_ref: what is added to each token's advantage; it sums to 0."""
    difference_K = start_K - reference_K
    return difference_K.mean() - difference_K


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
