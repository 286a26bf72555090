"""The loss of one micro-batch: the model's scores and the configuration put through the loss kernel.

Shapes: K sampled tokens.
"""

from torch import Tensor

from nat.backend.training.logprobs import TokenScores
from nat.backend.training.loss import clipped, kl_term, log_ratios, policy_term, sampler_weights
from nat.backend.training.metrics import TokenValues
from nat.backend.training.micro_batch import MicroBatch
from nat.wire.training import TrainingConfig


def micro_batch_loss(
    scores: TokenScores, batch: MicroBatch, old_K: Tensor, reference_K: Tensor | None, config: TrainingConfig
) -> tuple[Tensor, TokenValues]:
    """Give this micro-batch's share of the loss, and the values behind it."""
    logprobs_K = scores.logprobs_K
    dtype = logprobs_K.dtype
    sampler_K, advantages_K = batch.sampler_logprobs_K.to(dtype), batch.advantages_K.to(dtype)
    log_ratio_K = log_ratios(logprobs_K, old_K, batch.row_K, len(batch.rows), config.importance_sampling_level)
    clip_range = {"low": config.epsilon, "high": config.epsilon_high}
    objective_K = policy_term(log_ratio_K, logprobs_K, advantages_K, config.policy_loss, **clip_range)
    if reference_K is not None:
        objective_K = objective_K - config.beta * kl_term(logprobs_K, reference_K, old_K)
    weights_K = batch.weights_K.to(dtype) * sampler_weights(old_K, sampler_K, config.importance_sampling_cap)
    low_K, high_K = clipped(log_ratio_K.detach(), advantages_K, config.policy_loss, **clip_range)
    values = TokenValues(logprobs_K.detach(), old_K, sampler_K, reference_K, scores.entropy_K, low_K, high_K)
    return -(weights_K * objective_K).sum(), values
