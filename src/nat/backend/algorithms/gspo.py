"""GSPO: one ratio for a whole sequence, which is clipped to a very narrow range.

A sequence is a row: one branch of a rollout, with all turns that extend each other token by token.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nat.backend.algorithms.grpo import GRPO


def sequence(log_ratio_K: Tensor, row_K: Tensor, num_rows: int) -> Tensor:
    """The geometric mean of the ratios of a row's sampled tokens, for each of them."""
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
