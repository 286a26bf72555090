"""Dr. GRPO: GRPO without its two biases, the division by the standard deviation and that by the length.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.grpo import GRPO


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
