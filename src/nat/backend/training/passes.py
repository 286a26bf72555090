"""The learner's forward passes: rows through a model, in micro-batches, for a gradient or for log probabilities."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from nat.backend.algorithms.registry import Resolved
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.checkpointing import Checkpointing
from nat.backend.training.linear_cross_entropy import TokenScores
from nat.backend.training.loss import AnchorTable, ByRow, by_row, micro_batch_loss
from nat.backend.training.metrics import TokenSums
from nat.backend.training.micro_batch import MicroBatch, make_micro_batch, pack
from nat.backend.training.mismatch import compared_tokens
from nat.sizing.rules import micro_batch_tokens
from nat.wire.training import GradientCheckpointing, TrainingConfig

Weights = Callable[[], AbstractContextManager[PreTrainedModel]]
"""Gives a model, whose weights are in place for the time of the block."""


@dataclass
class StepShare:
    """What micro-batches gave, besides the gradient of the weights; sums over those of a step, or of all steps."""

    sums: TokenSums
    loss: float | Tensor = 0
    policy: float | Tensor = 0
    """Without the KL term."""
    start: ByRow = field(default_factory=dict)
    """Log probabilities at the start of the update, of rows that were scored for the first time."""
    packed_tokens: int = 0


class Passes:
    """Passes of one policy, and of others over the same micro-batches."""

    def __init__(self, policy: LoadedModel) -> None:
        self._policy = policy
        self._checkpointing = Checkpointing(policy.model)
        self._enough_tokens = micro_batch_tokens(policy.widest, cpu=policy.device.type == "cpu")

    def policy(self) -> AbstractContextManager[PreTrainedModel]:
        """The policy as it is now."""
        return nullcontext(self._policy.model)

    def pack(self, rows: Sequence[Row], config: TrainingConfig) -> list[list[Row]]:
        """Distribute rows over micro-batches."""
        return pack(rows, config.micro_batch_tokens, self._enough_tokens, shares=self._policy.plain is None)

    def micro_batch(self, rows: Sequence[Row], weights: Mapping[int, float]) -> MicroBatch:
        """Make a micro-batch; `weights` holds the share of a token by its rollout."""
        batch = make_micro_batch(rows, weights, self._policy.device)
        self._checkpointing.check_room(self.num_tokens(batch))
        return batch

    def num_tokens(self, batch: MicroBatch) -> int:
        """Tokens that a pass over the micro-batch computes."""
        return len(batch.packed.token_ids_T) if self._policy.plain is None else batch.packed.num_row_tokens

    def forward(self, batch: MicroBatch, choice: GradientCheckpointing) -> TokenScores:
        """Score the sampled tokens under the policy, for a backward pass."""
        with self._checkpointing.forward(choice, self.num_tokens(batch)):
            return batch.scores(self._policy.model)

    @torch.no_grad()
    def scores(
        self, weights: Weights, micro_batches: Sequence[Sequence[Row]], advance: Callable[[], None] = lambda: None
    ) -> ByRow:
        """Score all sampled tokens; gives log probabilities by row.

        The weights are in place for one micro-batch at a time, because `advance` may answer requests with others.
        """
        found: ByRow = {}
        for rows in micro_batches:
            batch = self.micro_batch(rows, {})
            with weights() as model:
                found |= by_row(rows, batch.scores(model).logprobs_K)
            advance()
        return found

    def gradient(
        self,
        micro_batches: Sequence[Sequence[Row]],
        weights: Mapping[int, float],
        anchors: AnchorTable,
        resolved: Resolved,
        *,
        compared: str | None = None,
        advance: Callable[[], None] = lambda: None,
    ) -> StepShare:
        """Add the gradient of some micro-batches of an optimizer step to that of the weights.

        `weights` holds the share of a token by its rollout; tokens of other weights than those of the version
        `compared` are not compared with the policy.
        """
        share = StepShare(TokenSums(self._policy.device))
        for rows in micro_batches:
            batch = self.micro_batch(rows, weights)
            scores = self.forward(batch, resolved.config.gradient_checkpointing)
            if not all(row.index in anchors.start for row in rows):
                start = by_row(rows, scores.logprobs_K.detach())
                share.start |= start
                anchors.start |= start
            loss, values = micro_batch_loss(scores, batch, anchors.of(rows), resolved)
            if torch.is_grad_enabled():
                loss.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
            compared_K = compared_tokens(rows, compared)
            share.sums.add(values, None if compared_K is None else compared_K.to(self._policy.device))
            share.loss += loss.detach()
            share.policy += values.policy_loss
            share.packed_tokens += self.num_tokens(batch)
            advance()
        return share

    def score(self, rows: Sequence[Row], config: TrainingConfig) -> ByRow:
        """Score all sampled tokens of some rows under the policy."""
        return self.scores(self.policy, self.pack(rows, config))
