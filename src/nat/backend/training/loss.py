"""The loss of a micro-batch, from the log probabilities of its sampled tokens and the settings of the update.

`algorithm.py` has the formula. What stays fixed while the policy of an update moves is in the `AnchorTable`.

Shapes: K sampled tokens of a micro-batch, R the rollouts of an optimizer step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nat.backend.algorithms.algorithm import PolicyTokens, clamped
from nat.backend.algorithms.registry import Resolved
from nat.backend.training.batch import Row
from nat.backend.training.linear_cross_entropy import TokenScores
from nat.backend.training.micro_batch import MicroBatch
from nat.wire.training import TrainingConfig

ByRow = dict[int, Tensor]
"""Values of the sampled tokens of each row, by the row's index."""


@dataclass(frozen=True)
class Anchors:
    """What the loss of K tokens compares the policy with."""

    start_K: Tensor
    """The learner's log probabilities at the start of the update."""
    reference_K: Tensor | None
    """The reference model's log probabilities, if the settings need them."""
    penalty_K: Tensor | None
    """The KL penalty, which is added to the advantages."""
    slope_K: Tensor | None = None
    """Of a sequence loss: what takes the place of the advantages."""


@dataclass
class AnchorTable:
    """The anchors of all rows of an update."""

    start: ByRow = field(default_factory=dict)
    reference: ByRow = field(default_factory=dict)
    penalty: ByRow = field(default_factory=dict)
    slopes: ByRow = field(default_factory=dict)

    def of(self, rows: Sequence[Row]) -> Anchors:
        known = (self.reference, self.penalty, self.slopes)
        return Anchors(joined(self.start, rows), *(joined(values, rows) if values else None for values in known))

    def penalise(self, rows: Sequence[Row], config: TrainingConfig) -> None:
        """Compute the KL penalty of the rows of an optimizer step, which compares its tokens with their mean."""
        policy_K = joined(self.start, rows)
        if config.kl_penalty_source == "sampler":
            reported_K = [math.nan if value is None else value for row in rows for value in row.sampler_logprobs]
            sampler_K = policy_K.new_tensor(reported_K)
            policy_K = policy_K.where(sampler_K.isnan(), sampler_K)
        self.penalty = by_row(rows, config.kl_penalty_coef * kl_penalty(policy_K, joined(self.reference, rows)))


def by_row(rows: Sequence[Row], values_K: Tensor) -> ByRow:
    """Split the values of some rows, which are laid out one after another."""
    parts = torch.split(values_K, [len(row.targets) for row in rows])
    return {row.index: part for row, part in zip(rows, parts, strict=True)}


def joined(values: Mapping[int, Tensor], rows: Sequence[Row]) -> Tensor:
    """Lay out the values of some rows one after another."""
    return torch.cat([values[row.index] for row in rows])


class TokenValues(NamedTuple):
    """What the loss computed for K tokens, without gradients; for the metrics."""

    logprobs_K: Tensor
    start_logprobs_K: Tensor
    sampler_logprobs_K: Tensor
    sampled_K: Tensor
    """False for tokens of a text, which no sampler gave a log probability."""
    reference_K: Tensor | None
    teacher_gap_K: Tensor | None
    """log π_start - log π_teacher, 0 where the teacher gave no log probability; None without a teacher."""
    entropy_K: Tensor
    advantages_K: Tensor
    clipped_low_K: Tensor
    clipped_high_K: Tensor
    policy_loss: Tensor
    """Of all K tokens, without the KL term."""


def micro_batch_loss(
    scores: TokenScores, batch: MicroBatch, anchors: Anchors, resolved: Resolved
) -> tuple[Tensor, TokenValues]:
    """Give this micro-batch's share of the loss of its optimizer step, and the values that it was computed from."""
    algorithm, config = resolved.algorithm, resolved.config
    logprobs_K, start_K = scores.logprobs_K, anchors.start_K
    dtype = logprobs_K.dtype
    sampler_K, advantages_K = batch.sampler_logprobs_K.to(dtype), batch.advantages_K.to(dtype)
    sampler_K = sampler_K.where(batch.sampled_K, start_K)
    old_K = start_K if config.old_logprobs == "learner" else sampler_K
    teacher_gap_K = None
    if algorithm.teacher_advantage is not None:
        assert batch.teacher_logprobs_K is not None, "a batch without them was refused"
        assert batch.taught_K is not None, "likewise"
        teacher_K = batch.teacher_logprobs_K.to(dtype)
        teacher_gap_K = (start_K - teacher_K) * batch.taught_K
        log_ratio_K = (teacher_K - logprobs_K.detach()) * batch.taught_K
        advantages_K = algorithm.teacher_advantage(log_ratio_K, advantages_K, resolved.options)
    if anchors.penalty_K is not None:
        advantages_K = advantages_K + anchors.penalty_K.to(dtype)
    if anchors.slope_K is not None:
        advantages_K = anchors.slope_K.to(dtype)
    num_rows = len(batch.rows)
    term = algorithm.policy_loss(
        PolicyTokens(
            logprobs_K=logprobs_K,
            old_logprobs_K=old_K,
            log_ratio_K=clamped(algorithm.importance_sampling_level(logprobs_K - old_K, batch.row_K, num_rows)),
            advantages_K=advantages_K,
            row_K=batch.row_K,
            num_rows=num_rows,
            epsilon=config.epsilon,
            epsilon_high=config.epsilon_high,
            options=resolved.options,
        )
    )
    cap = config.importance_sampling_cap if config.old_logprobs == "learner" else None  # else the ratio corrects
    weights_K = batch.weights_K.to(dtype) * sampler_weights(start_K, sampler_K, cap)
    policy = -(weights_K * term.objective_K).sum()
    total = policy
    if anchors.reference_K is not None and config.beta and anchors.slope_K is None:
        total = policy + config.beta * (weights_K * kl_term(logprobs_K, anchors.reference_K, start_K)).sum()
    values = TokenValues(
        logprobs_K=logprobs_K.detach(),
        start_logprobs_K=start_K,
        sampler_logprobs_K=sampler_K,
        sampled_K=batch.sampled_K,
        reference_K=anchors.reference_K,
        teacher_gap_K=teacher_gap_K,
        entropy_K=scores.entropy_K,
        advantages_K=advantages_K,
        clipped_low_K=term.clipped_low_K,
        clipped_high_K=term.clipped_high_K,
        policy_loss=policy.detach(),
    )
    return total, values


def rollout_weights(tokens_R: Tensor, resolved: Resolved) -> Tensor:
    """Give the weight of one token of each rollout, from the sampled tokens of every rollout of the optimizer step.

    All rows of a rollout use its weight, so a rollout that was cut into many rows weighs as one.
    """
    return resolved.algorithm.aggregation(tokens_R.to(torch.float64), resolved.config.max_completion_length)


def kl_penalty(policy_K: Tensor, reference_K: Tensor) -> Tensor:
    """Give mean(d) - d with d = log π - log π_ref, the penalty per token; it sums to zero."""
    difference_K = policy_K - reference_K
    return difference_K.mean() - difference_K


def kl_term(logprobs_K: Tensor, reference_K: Tensor, old_logprobs_K: Tensor) -> Tensor:
    """Estimate KL(π‖π_ref) per token as r · k3, with r = π/π_old at token level.

    k3 = e^-d - 1 + d with d = log π - log π_ref has a low variance but, differentiated alone, the wrong gradient.
    Times the ratio, which is differentiated too, the gradient is r · d · ∇log π: that of the KL itself (TRL's
    `use_bias_correction_kl`).
    """
    return clamped(logprobs_K - old_logprobs_K).exp() * k3(logprobs_K - reference_K)


def k3(difference_K: Tensor) -> Tensor:
    """Give e^-d - 1 + d ≥ 0, whose mean under p estimates KL(p‖q) for d = log p - log q."""
    difference_K = clamped(difference_K)
    return torch.expm1(-difference_K) + difference_K


def sampler_weights(old_logprobs_K: Tensor, sampler_logprobs_K: Tensor, cap: float | None) -> Tensor:
    """Truncated importance sampling: min(π_old/μ, cap) per token, or ones for no correction."""
    if cap is None:
        return torch.ones_like(old_logprobs_K)
    return clamped(old_logprobs_K - sampler_logprobs_K).exp().clamp(max=cap)
