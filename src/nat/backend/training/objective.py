"""The loss of one micro-batch: the model's scores and the configuration put through the loss kernel.

Shapes: K sampled tokens.
"""

from dataclasses import dataclass

from torch import Tensor

from nat.backend.training.anchors import Anchors
from nat.backend.training.logprobs import TokenScores
from nat.backend.training.loss import bounded_ratios, clipped, kl_term, log_ratios, policy_term, sampler_weights
from nat.backend.training.metrics import TokenValues
from nat.backend.training.micro_batch import MicroBatch
from nat.wire.training import TrainingConfig


@dataclass(frozen=True)
class Loss:
    """A micro-batch's share of the loss of its optimizer step."""

    total: Tensor
    policy: Tensor
    """Without the KL term, and without a gradient."""


def micro_batch_loss(
    scores: TokenScores, batch: MicroBatch, anchors: Anchors, config: TrainingConfig
) -> tuple[Loss, TokenValues]:
    """Give this micro-batch's share of the loss, and the values behind it."""
    logprobs_K, start_K = scores.logprobs_K, anchors.start_K
    dtype = logprobs_K.dtype
    sampler_K, advantages_K = batch.sampler_logprobs_K.to(dtype), batch.advantages_K.to(dtype)
    old_K = start_K if config.old_logprobs == "learner" else sampler_K
    if anchors.penalty_K is not None:
        advantages_K = advantages_K + anchors.penalty_K.to(dtype)
    if config.kimi_k2_tau:
        advantages_K = advantages_K - config.kimi_k2_tau * (logprobs_K.detach() - old_K)
    clip_range = {"low": config.epsilon, "high": config.epsilon_high}
    log_ratio_K = log_ratios(logprobs_K, old_K, batch.row_K, len(batch.rows), config.importance_sampling_level)
    ratio_K = bounded_ratios(
        log_ratio_K,
        advantages_K,
        negative_cap=config.max_negative_advantage_importance_sampling_weight,
        mask=config.mask_prob_ratio,
        **clip_range,
    )
    cap = config.importance_sampling_cap if config.old_logprobs == "learner" else None  # else the ratio corrects
    weights_K = batch.weights_K.to(dtype) * sampler_weights(start_K, sampler_K, cap)
    policy = -(weights_K * policy_term(ratio_K, logprobs_K, advantages_K, config.policy_loss, **clip_range)).sum()
    total = policy
    if anchors.reference_K is not None and config.beta:
        total = policy + config.beta * (weights_K * kl_term(logprobs_K, anchors.reference_K, start_K)).sum()
    low_K, high_K = clipped(
        log_ratio_K.detach().exp(), advantages_K, config.policy_loss, mask=config.mask_prob_ratio, **clip_range
    )
    values = TokenValues(
        logprobs_K=logprobs_K.detach(),
        start_logprobs_K=start_K,
        sampler_logprobs_K=sampler_K,
        reference_K=anchors.reference_K,
        entropy_K=scores.entropy_K,
        advantages_K=advantages_K,
        clipped_low_K=low_K,
        clipped_high_K=high_K,
    )
    return Loss(total, policy.detach()), values
