"""CISPO: the ratio is a capped weight without a gradient, so no token loses its gradient.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

import torch

from nat.backend.algorithms.algorithm import PolicyTerm, PolicyTokens
from nat.backend.algorithms.dapo import token_mean
from nat.backend.algorithms.grpo import GRPO


def cispo(tokens: PolicyTokens) -> PolicyTerm:
    """Give sg(min(r, 1 + high)) · A · log π."""
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
