"""DAPO: GRPO with a mean over all tokens, and no loss on truncated rollouts.

Its wider upper clip bound is that of `grpo`, and groups of equal rewards are left out whatever the algorithm.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nat.backend.algorithms.grpo import GRPO


def token_mean(tokens_R: Tensor, max_completion_length: int) -> Tensor:  # noqa: ARG001 - the signature of an aggregation
    """The mean over all tokens of the optimizer step: 1 / Σ tokens."""
    return torch.ones_like(tokens_R) / tokens_R.sum()


DAPO = replace(
    GRPO,
    name="dapo",
    summary="GRPO with a mean over all tokens; truncated rollouts carry no loss.",
    paper="arXiv 2503.14476",
    aggregation=token_mean,
    defaults={
        "normalize_advantages": False,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "mask_truncated_completions": True,
    },
)
