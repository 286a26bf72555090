"""Rows as tensors: one forward pass of the learner.

Shapes: T packed input tokens, K sampled tokens, N rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from nat.backend.training.batch import Row
from nat.backend.training.logprobs import TokenScores, token_scores
from nat.backend.tree_attention import PackedTree


@dataclass(frozen=True)
class MicroBatch:
    """Packed rows, and what the loss needs at each sampled token."""

    rows: Sequence[Row]
    packed: PackedTree
    keep_K: Tensor
    """Packed index of the output that predicts each sampled token; answers to one prompt share that of their first."""
    targets_K: Tensor
    row_K: Tensor
    """Which of the N rows a sampled token belongs to."""
    sampler_logprobs_K: Tensor
    advantages_K: Tensor
    weights_K: Tensor
    """Share of each token in the loss of the whole optimizer step, times the weight of its rollout."""
    temperatures_K: Tensor | None = None
    """At which each token was drawn; None if all were at 1."""

    def scores(self, model: PreTrainedModel) -> TokenScores:
        """Score the sampled tokens under a model, each at its temperature."""
        return token_scores(model, self.packed, self.keep_K, self.targets_K, self.temperatures_K)


def make_micro_batch(rows: Sequence[Row], weights: Mapping[int, float], device: torch.device) -> MicroBatch:
    """Pack rows, what they share once; `weights` holds the share of a token by its rollout."""
    packed = PackedTree([row.input_ids for row in rows], device)
    keep = np.concatenate([path[row.positions] for path, row in zip(packed.paths, rows, strict=True)])
    counts = torch.tensor([len(row.targets) for row in rows])

    def spread(per_row: list[float]) -> Tensor:
        return torch.tensor(per_row, dtype=torch.float64).repeat_interleave(counts).to(device)

    return MicroBatch(
        rows=rows,
        packed=packed,
        keep_K=torch.from_numpy(keep).to(device),
        targets_K=torch.tensor([token for row in rows for token in row.targets], device=device),
        row_K=torch.arange(len(rows)).repeat_interleave(counts).to(device),
        sampler_logprobs_K=torch.tensor(
            [logprob for row in rows for logprob in row.sampler_logprobs], dtype=torch.float64, device=device
        ),
        advantages_K=torch.tensor([a for row in rows for a in row.advantages], dtype=torch.float64, device=device),
        weights_K=spread([weights.get(row.rollout, 0.0) * row.weight for row in rows]),
        temperatures_K=temperature_tensor([t for row in rows for t in row.sampled_at], device),
    )


def temperature_tensor(temperatures: Sequence[float], device: torch.device) -> Tensor | None:
    """None if all are 1, so that nothing is divided."""
    if all(temperature == 1 for temperature in temperatures):
        return None
    return torch.tensor(temperatures, dtype=torch.float64, device=device)
