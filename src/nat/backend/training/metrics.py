"""Metrics of an update, as sums over sampled tokens; `docs/update_metrics.py` describes each of them.

The sums stay on the device until the end, so that metrics never make the device wait.

Shapes: K sampled tokens of a micro-batch.
"""

from typing import Self

import torch
from torch import Tensor

from nat.backend.algorithms.algorithm import clamped
from nat.backend.training.batch import Batch
from nat.backend.training.checks import Difference
from nat.backend.training.loss import TokenValues, k3
from nat.backend.tree_attention import unique_tokens


class TokenSums:
    """Running sums over the tokens of an optimizer step, or of all steps of a job."""

    def __init__(self, device: torch.device) -> None:
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self._sums: dict[str, Tensor] = {}
        self._largest = self._zero
        self._count = 0
        self._num_compared = 0

    def add(self, values: TokenValues, compared_K: Tensor | None = None) -> None:
        """Add tokens; `compared_K` is true where the weights at the start of the update sampled them (None: all)."""
        weights_K = clamped(values.logprobs_K - values.sampler_logprobs_K).exp() * values.sampled_K
        gap_K = (values.start_logprobs_K - values.sampler_logprobs_K).abs()
        if compared_K is not None:
            gap_K = gap_K[compared_K]
        terms = {
            "entropy": values.entropy_K,
            "advantage_size": values.advantages_K.abs(),
            "with_advantage": values.advantages_K != 0,
            "clip_fraction_low": values.clipped_low_K,
            "clip_fraction_high": values.clipped_high_K,
            "logprob_diff_mean": gap_K,
            "sampled": values.sampled_K,
            "sampler_kl": k3(values.sampler_logprobs_K - values.start_logprobs_K),  # 0 where no sampler was
            "weight": weights_K,
            "weight_squared": weights_K.square(),
        }
        if values.reference_K is not None:
            terms["reference_kl"] = k3(values.logprobs_K - values.reference_K)
        if values.teacher_gap_K is not None:
            terms["teacher_kl"] = clamped(values.teacher_gap_K)
        for name, term_K in terms.items():
            self._sums[name] = self._sums.get(name, self._zero) + term_K.sum(dtype=self._zero.dtype)
        if len(gap_K):
            self._largest = torch.maximum(self._largest, gap_K.max().to(self._zero.dtype))
        self._num_compared += len(gap_K)
        self._count += len(values.logprobs_K)

    def __iadd__(self, other: Self) -> Self:
        """Add the sums of other tokens."""
        for name, value in other._sums.items():
            self._sums[name] = self._sums.get(name, self._zero) + value
        self._largest = torch.maximum(self._largest, other._largest)
        self._num_compared += other._num_compared
        self._count += other._count
        return self

    @property
    def sampler_difference(self) -> Difference:
        """How far the learner at the start of the update is from the sampler with the same weights."""
        mean = float(self._sums["logprob_diff_mean"]) / max(1, self._num_compared)
        return Difference(mean=mean, largest=float(self._largest), tokens=self._num_compared)

    @property
    def with_advantage(self) -> float:
        """Share of the tokens whose advantage is not zero."""
        return float(self._sums["with_advantage"]) / self._count

    @property
    def clipped(self) -> float:
        """Share of the tokens that were clipped."""
        return float(self._sums["clip_fraction_low"] + self._sums["clip_fraction_high"]) / self._count

    def means(self) -> dict[str, float]:
        """Means over tokens, and the effective sample size as a share of the tokens.

        What compares with the sampler is a mean over sampled tokens, and missing where there are none.
        """
        apart = {"with_advantage", "logprob_diff_mean"}
        sums = {name: float(value) for name, value in self._sums.items() if name not in apart}
        sampled, kl, weight, weight_squared = map(sums.pop, ("sampled", "sampler_kl", "weight", "weight_squared"))
        found = {name: value / self._count for name, value in sums.items()}
        found |= difference_metrics(self.sampler_difference)
        if sampled:
            found |= {"sampler_kl": kl / sampled, "effective_sample_size": weight**2 / (sampled * weight_squared)}
        return found


def difference_metrics(seen: Difference) -> dict[str, float]:
    """The difference of sampler and learner, if tokens were compared."""
    return {"logprob_diff_mean": seen.mean, "logprob_diff_max": seen.largest} if seen.tokens else {}


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Counts of the trained groups, rollouts, rows and tokens."""
    rows = [row.input_ids for row in batch.rows]
    return {
        "truncated_fraction": batch.truncated_share,
        "zero_advantages": batch.share_without_advantage,
        "trained_groups": len({row.group for row in batch.rows}),
        "trained_rollouts": len({row.rollout for row in batch.rows}),
        "trained_rows": len(batch.rows),
        "trained_tokens": sum(len(row.targets) for row in batch.rows),
        "row_tokens": sum(map(len, rows)),
        "unique_tokens": unique_tokens(rows),
        **({"pairs": len(batch.pairs), "pairs_left_out": batch.pairs_left_out} if batch.paired else {}),
    }
