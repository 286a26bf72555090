"""The learner's forward passes: rows through a model, in micro-batches, for a gradient or for log probabilities.

If it has several ranks, each computes some of the micro-batches, as `ranks.py` says; one alone needs no other rank.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
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
from nat.backend.training.optimizer import MasterAdamW
from nat.backend.training.ranks import Ranks
from nat.sizing.rules import micro_batch_tokens
from nat.wire.training import GradientCheckpointing, TrainingConfig

Weights = Callable[[], AbstractContextManager[PreTrainedModel]]
"""Gives a model, whose weights are in place for the time of the block."""


@dataclass(frozen=True)
class Task:
    """What the loss of an optimizer step needs besides its rows."""

    weights: Mapping[int, float]
    """Share of a token by its rollout."""
    anchors: AnchorTable
    resolved: Resolved
    earlier_versions: Collection[str]
    """Weights that sampled some of the tokens, if these are not compared with the policy."""


@dataclass
class StepShare:
    """What micro-batches gave, besides the gradient of the weights; sums over those of a step, or of all steps."""

    sums: TokenSums
    loss: float | Tensor = 0
    policy: float | Tensor = 0
    """Without the KL term."""
    start: ByRow = field(default_factory=dict)
    """Log probabilities at the start of the update, of rows that were scored for the first time."""
    gradients: ByRow = field(default_factory=dict)
    """Of the loss, at the log probability of each token."""
    packed_tokens: int = 0

    def __iadd__(self, other: Self) -> Self:
        """Add what other micro-batches gave."""
        self.sums += other.sums
        self.loss += other.loss
        self.policy += other.policy
        self.start |= other.start
        for index, part in other.gradients.items():
            self.gradients[index] = self.gradients[index] + part if index in self.gradients else part
        self.packed_tokens += other.packed_tokens
        return self


@dataclass(frozen=True)
class Work:
    """What another rank computes in a round; without a task it scores, else it adds up gradients."""

    micro_batches: Sequence[Sequence[Row]]
    task: Task | None
    adapter: bool
    """Whether the adapter, if there is one, takes part."""
    idle: Sequence[Sequence[Row]] = ()
    """Further passes, whose results count for nothing: ranks that hold shards compute equally many."""


class Passes:
    """Passes of one policy, and of others over the same micro-batches."""

    def __init__(
        self,
        policy: LoadedModel,
        optimizer: MasterAdamW,
        ranks: Ranks | None = None,
        *,
        checkpointing: Checkpointing | None = None,
    ) -> None:
        """`optimizer` has the gradients of the policy."""
        self._policy = policy
        self._optimizer = optimizer
        self._ranks = ranks
        self._checkpointing = checkpointing or Checkpointing(policy.model)
        self._enough_tokens = micro_batch_tokens(policy.widest, cpu=policy.device.type == "cpu")

    def policy(self) -> AbstractContextManager[PreTrainedModel]:
        """The policy as it is now."""
        return nullcontext(self._policy.model)

    def pack(self, rows: Sequence[Row], config: TrainingConfig) -> list[list[Row]]:
        """Distribute rows over micro-batches, if possible so many that each rank can have one."""
        most = config.micro_batch_tokens
        if rows and self._ranks is not None:
            most = min(most, max(_tokens(rows) // self._ranks.count + 1, *(len(row.input_ids) for row in rows)))
        return pack(rows, most, self._enough_tokens, shares=self._policy.plain is None)

    def micro_batch(self, rows: Sequence[Row], weights: Mapping[int, float]) -> MicroBatch:
        """Make a micro-batch; `weights` holds the share of a token by its rollout.

        Raises:
            UpdateRejected: the memory does not hold its activations.

        """
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
        own, ranks = self._begin(micro_batches, weights)
        found: ByRow = {}
        for rows in own:
            batch = self.micro_batch(rows, {})
            with weights() as model:
                found |= by_row(rows, batch.scores(model).logprobs_K)
            advance()
        for scored in ranks.results(advance) if ranks is not None else ():
            found |= scored
        return found

    def gradient(
        self, micro_batches: Sequence[Sequence[Row]], task: Task, advance: Callable[[], None] = lambda: None
    ) -> StepShare:
        """Add the gradient of some micro-batches of an optimizer step to that of the weights."""
        own, ranks = self._begin(micro_batches, self.policy, task)
        share = StepShare(TokenSums(self._policy.device))
        for rows in own:
            self._add_gradient(self.micro_batch(rows, task.weights), task, share)
            advance()
        if ranks is not None:
            names = set(self._optimizer.with_gradient())
            for found, trained in ranks.results(advance):
                share += found
                names.update(trained)
            ordered = [name for name in self._policy.trainable_parameters() if name in names]
            ranks.sum(ordered, self._optimizer)
        return share

    def idle(
        self, micro_batches: Sequence[Sequence[Row]], task: Task, advance: Callable[[], None] = lambda: None
    ) -> None:
        """Compute passes whose gradient is zero."""
        for rows in micro_batches:
            scores = self.forward(self.micro_batch(rows, {}), task.resolved.config.gradient_checkpointing)
            (0 * scores.logprobs_K.sum()).backward()  # type: ignore[no-untyped-call]  # torch declares it without types
            advance()

    def _begin(
        self, micro_batches: Sequence[Sequence[Row]], weights: Weights, task: Task | None = None
    ) -> tuple[Sequence[Sequence[Row]], Ranks | None]:
        """Let the other ranks begin their share; gives our own, and the ranks unless there is none to share with."""
        ranks = self._ranks
        if ranks is None or len(micro_batches) <= (0 if ranks.shards else 1):
            return micro_batches, None
        if ranks.shards:
            own: list[Sequence[Row]] = []
            others, idle = even(shared(micro_batches, ranks.count - 1))
        else:
            own, *others = shared(micro_batches, ranks.count)
            idle = [()] * len(others)
        with weights() as model:
            is_off = any(module.disable_adapters for module in model.modules() if isinstance(module, BaseTunerLayer))
            works = [Work(part, task, not is_off, more) for part, more in zip(others, idle, strict=True)]
            ranks.begin(works, self._trained(model))
        return own, ranks

    def _trained(self, model: PreTrainedModel) -> list[Tensor]:
        """The weights of a model that stand where the policy's trained ones do."""
        trained = self._policy.trainable_parameters()
        if model is not self._policy.model:
            own = dict(model.named_parameters())
            return [own[name] for name in trained]
        return list(trained.values())

    def _add_gradient(self, batch: MicroBatch, task: Task, share: StepShare) -> None:
        rows, anchors = batch.rows, task.anchors
        scores = self.forward(batch, task.resolved.config.gradient_checkpointing)
        if not all(row.index in anchors.start for row in rows):
            start = by_row(rows, scores.logprobs_K.detach())
            share.start |= start
            anchors.start |= start
        loss, values = micro_batch_loss(scores, batch, anchors.of(rows), task.resolved)
        if torch.is_grad_enabled():
            scores.logprobs_K.register_hook(partial(_keep_gradient, share, rows))  # type: ignore[no-untyped-call]
            loss.total.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        compared_K = compared_tokens(rows, task.earlier_versions)
        share.sums.add(values, None if compared_K is None else compared_K.to(self._policy.device))
        share.loss += loss.total.detach()
        share.policy += loss.policy
        share.packed_tokens += self.num_tokens(batch)

    def score(self, rows: Sequence[Row], config: TrainingConfig) -> ByRow:
        """Score all sampled tokens of some rows under the policy."""
        return self.scores(self.policy, self.pack(rows, config))


def _keep_gradient(share: StepShare, rows: Sequence[Row], gradient_K: Tensor) -> None:
    share.gradients |= by_row(rows, gradient_K.detach())


def shared(micro_batches: Sequence[Sequence[Row]], count: int) -> list[list[Sequence[Row]]]:
    """Give each rank its micro-batches: the longest first, each to the rank with the fewest tokens so far."""
    parts: list[list[Sequence[Row]]] = [[] for _ in range(count)]
    for rows in sorted(micro_batches, key=_tokens, reverse=True):
        min(parts, key=lambda part: sum(map(_tokens, part))).append(rows)
    return parts


def even(parts: list[list[Sequence[Row]]]) -> tuple[list[list[Sequence[Row]]], list[Sequence[Sequence[Row]]]]:
    """The parts, and for each so many micro-batches of the shortest row that all have as many together."""
    most, short = max(map(len, parts)), min((row for rows in parts[0] for row in rows), key=lambda r: len(r.input_ids))
    return parts, [[[short]] * (most - len(part)) for part in parts]


def _tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.input_ids) for row in rows)
