"""ART's loss as an algorithm of the backend, with the options that only ART has.

ART's loss is CISPO with weights held in [0, 5] (epsilon 1 and 4), or with `ppo` the clipped objective of PPO. Its ratio
compares with the sampler's log probabilities; AdamW has β 0.9 and 0.99, weight decay 0.1 and a gradient norm of at most
0.1.

Two options do what their names say, where ART's loss does a little more: the cap of
`max_negative_advantage_importance_sampling_weight` does not change positive advantages, and `mask_prob_ratio` drops a
token even if epsilon puts a floor under the weights.

Shapes: K sampled tokens of a micro-batch.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from nat.backend.algorithms.advantages import Advantage
from nat.backend.algorithms.algorithm import AlgorithmOptions, PolicyTerm, PolicyTokens, clamped
from nat.backend.algorithms.grpo import GRPO, sequence, token_mean
from nat.wire.numbers import Amount, PositiveAmount


class ArtOptions(AlgorithmOptions):
    """Options of ART's loss, under ART's names."""

    ppo: bool = False
    """Use PPO's clipped objective instead of CISPO."""
    importance_sampling_level: Literal["average", "geometric_average"] | None = None
    """Average the ratio of each token with that of its row; null: as `training.importance_sampling_level` says."""
    mask_prob_ratio: bool = False
    """Drop the gradient of tokens whose ratio is outside the clip range, whatever their advantage."""
    max_negative_advantage_importance_sampling_weight: PositiveAmount | None = None
    """Cap of the ratio where the advantage is negative; null for no cap."""
    kimi_k2_tau: Amount = 0.0
    """Subtract tau · log(π/π_old) from each token's advantage."""
    num_trajectories_learning_rate_multiplier_power: float = Field(default=0.0, ge=-10, le=10)
    """Multiply the learning rate of an optimizer step by the number of its trajectories to this power."""


def art_loss(tokens: PolicyTokens) -> PolicyTerm:
    """Give ART's objective for each token.

    cispo: sg(clip(r, 1 - low, 1 + high)) · A · log π. ppo: min(rA, clip(r, 1 - low, 1 + high) A).
    """
    options, advantages_K = tokens.options, tokens.advantages_K
    if options.kimi_k2_tau:
        advantages_K = advantages_K - options.kimi_k2_tau * (tokens.logprobs_K.detach() - tokens.old_logprobs_K)
    low, high = 1 - tokens.epsilon, 1 + tokens.epsilon_high
    unbounded_K = averaged(tokens).exp()
    low_K, high_K = unbounded_K.detach() < low, unbounded_K.detach() > high
    ratio_K = unbounded_K
    if (cap := options.max_negative_advantage_importance_sampling_weight) is not None:
        ratio_K = torch.where(advantages_K < 0, ratio_K.clamp(max=cap), ratio_K)
    inside_K = torch.ones_like(low_K)
    if options.mask_prob_ratio:
        inside_K = (ratio_K > low) & (ratio_K < high)
    elif options.ppo:
        low_K, high_K = low_K & (advantages_K < 0), high_K & (advantages_K > 0)
    clipped_K = ratio_K.clamp(low, high)
    if options.ppo:
        objective_K = torch.minimum(ratio_K * advantages_K, clipped_K * advantages_K)
    else:
        objective_K = clipped_K.detach() * advantages_K * tokens.logprobs_K
    return PolicyTerm(objective_K.where(inside_K, 0.0), clipped_low_K=low_K, clipped_high_K=high_K)


def averaged(tokens: PolicyTokens) -> Tensor:
    """The log of the ratio per token, averaged with that of its row if the options say so."""
    level = tokens.options.importance_sampling_level
    if level is None:
        return tokens.log_ratio_K
    token_K = tokens.logprobs_K - tokens.old_logprobs_K
    row_K = sequence(token_K, tokens.row_K, tokens.num_rows)
    mean_K = (token_K + row_K) / 2 if level == "geometric_average" else torch.logaddexp(token_K, row_K) - math.log(2)
    return clamped(mean_K)


def _learning_rate_factor(num_rollouts: int, options: ArtOptions) -> float:
    return float(num_rollouts**options.num_trajectories_learning_rate_multiplier_power)


ART = replace(
    GRPO,
    name="art",
    summary="The loss of OpenPipe ART: CISPO with weights from 0 to 5, or PPO, on advantages that rollouts carry.",
    paper="https://github.com/OpenPipe/ART",
    advantage=Advantage(compare=None),
    policy_loss=art_loss,
    aggregation=token_mean,
    defaults={
        "normalize_advantages": False,
        "old_logprobs": "sampler",
        "epsilon": 1.0,
        "epsilon_high": 4.0,
        "importance_sampling_cap": None,
        "adam_beta1": 0.9,
        "adam_beta2": 0.99,
        "weight_decay": 0.1,
        "max_grad_norm": 0.1,
    },
    options=ArtOptions,
    learning_rate_factor=_learning_rate_factor,
)
