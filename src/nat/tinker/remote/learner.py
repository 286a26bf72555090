"""The learner of a Tinker server: rows, advantages, checks and metrics are ours, gradient and step are the server's.

The log probabilities that come with a gradient give the metrics of the loss here, too. After each update the server
saves its state; an update that fails is undone by reopening the state before it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan
from typing import Any

import torch
from torch import Tensor

from nat.backend.algorithms.registry import Resolved
from nat.backend.model import LoadedModel
from nat.backend.training.agreement import Agreement
from nat.backend.training.batch import Row
from nat.backend.training.checks import check_finite
from nat.backend.training.learner import Learner, OnStep
from nat.backend.training.linear_cross_entropy import TokenScores
from nat.backend.training.loss import ByRow, by_row
from nat.backend.training.micro_batch import MicroBatch, make_micro_batch
from nat.backend.training.mismatch import Probe
from nat.backend.training.optimizer import Change, MasterAdamW, usual_learning_rate
from nat.backend.training.passes import Passes, StepShare, Task, Weights
from nat.backend.training.reference import Reference
from nat.errors import UpdateRejected
from nat.tinker.remote.losses import UNCLIPPED, NamedLoss, datum_of, named_loss, settings
from nat.tinker.remote.probe import LOSS, Normalization, probed, supports
from nat.tinker.remote.service import Trained
from nat.wire.training import GradientCheckpointing, TrainingConfig, TrainingGroup

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")
_FORWARD = NamedLoss(LOSS, {})


@dataclass(frozen=True)
class RemoteModel(LoadedModel):
    """A tokenizer and sizes; the weights are on the server."""

    rank: int = 0
    """Rank of the adapter that is trained there; 0 if all weights are."""

    @property
    def device(self) -> torch.device:
        return CPU

    @property
    def trains_adapter(self) -> bool:
        return self.rank > 0

    def trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        return {}


class RemoteAdamW(MasterAdamW):
    """The server's optimizer."""

    def __init__(self, trained: Trained) -> None:
        super().__init__({})
        self._trained = trained
        self._max_norm = 0.0
        self.slope = 0.0
        """Norm of the loss's gradient at the log probabilities, since that of the weights is known after the step."""

    def forget(self) -> None:
        self._trained.begin(self._trained.state)

    def clip(self, max_norm: float) -> float:
        """Clip in the next step; gives another norm, which is 0 or not finite if the gradient's is."""
        self._max_norm = 0.0 if max_norm >= UNCLIPPED else max_norm
        return self.slope

    def step(self, learning_rate: float) -> Change:
        config = self._config
        betas = {"beta1": config.adam_beta1, "beta2": config.adam_beta2, "eps": config.adam_epsilon}
        more = {"weight_decay": config.weight_decay, "grad_clip_norm": self._max_norm}
        norm = self._trained.step(learning_rate=learning_rate, **betas, **more)
        return Change(nan, nan, moved=True, grad_norm=norm)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        try:
            yield
            self._trained.save()
        except BaseException:
            self._trained.resume(self._trained.state)
            raise


class RemotePasses(Passes):
    """Passes over all rows of a step at once, on the server."""

    def __init__(self, policy: LoadedModel, optimizer: RemoteAdamW, trained: Trained) -> None:
        super().__init__(policy)
        self._adamw, self._remote = optimizer, trained
        self._loss = _FORWARD

    @cached_property
    def server(self) -> Normalization:
        """What the server makes of a batch, measured when it is first asked for."""
        found = probed(self._remote, self._policy.vocab_size)
        logger.info("the Tinker server: %s", found)
        return found

    def pack(self, rows: Sequence[Row], _: TrainingConfig) -> list[list[Row]]:
        return [list(rows)] if rows else []

    def micro_batch(self, rows: Sequence[Row], weights: Mapping[int, float]) -> MicroBatch:
        return make_micro_batch(rows, weights, CPU)

    def gradient(
        self, micro_batches: Sequence[Sequence[Row]], task: Task, advance: Callable[[], None] = lambda: None
    ) -> StepShare:
        self._loss = named_loss(task.resolved) or _FORWARD  # settings without one were refused
        share = super().gradient(micro_batches, task, advance)
        self._adamw.slope = float(torch.cat(list(share.gradients.values())).norm())
        return share

    def forward(self, batch: MicroBatch, _: GradientCheckpointing) -> TokenScores:
        """Have the server add the gradient; the log probabilities are leaves of a graph without a model."""
        advantages = by_row(batch.rows, batch.advantages_K * batch.weights_K)
        for row in batch.rows:
            advantages[row.index] *= self.server.scale(len(row.input_ids), len(batch.rows))
        found = self._sent(batch.rows, advantages, self._loss)
        logprobs_K = torch.cat([found[row.index] for row in batch.rows]).requires_grad_()
        return TokenScores(logprobs_K, torch.full_like(logprobs_K, nan))

    def scores(
        self, weights: Weights, micro_batches: Sequence[Sequence[Row]], advance: Callable[[], None] = lambda: None
    ) -> ByRow:
        del weights  # the policy's
        found: ByRow = {}
        for rows in micro_batches:
            nothing = {row.index: torch.zeros(len(row.targets)) for row in rows}
            found |= self._sent(rows, nothing, _FORWARD, gradient=False)
            advance()
        return found

    def _sent(self, rows: Sequence[Row], advantages: ByRow, loss: NamedLoss, *, gradient: bool = True) -> ByRow:
        data = [datum_of(row, advantages[row.index].tolist(), loss) for row in rows]
        empty = datum_of(rows[0], [0.0] * len(rows[0].targets), loss)
        data += [empty] * (self.server.filled(len(data)) - len(data))
        found = self._remote.forward_backward(data, *loss, gradient=gradient)[: len(rows)]
        return {row.index: at_targets(row, logprobs) for row, logprobs in zip(rows, found, strict=True)}


class RemoteLearner(Learner):
    """Trains an adapter or all weights on a server, under the checks of our own updates."""

    def __init__(self, policy: RemoteModel, trained: Trained, probe: Probe) -> None:
        reference = Reference(policy, lambda: policy.model)  # never asked: settings that need one are refused
        super().__init__(policy, reference, probe)
        self.trained, self.optimizer = trained, (optimizer := RemoteAdamW(trained))
        self._passes = self._remote = RemotePasses(policy, optimizer, trained)
        self._agreement = Agreement(policy, probe, self._passes.score)
        self._known: dict[str, bool] = {}
        """Whether the server computes a loss, by its name."""

    def resolved(self, config: TrainingConfig) -> Resolved:
        """Give the settings that an update uses; AlgorithmError if the server would not do what one says."""
        rate = usual_learning_rate(self._policy.width, lora=self._policy.trains_adapter)
        return settings(config, rate, self._remote.server, self._supports)

    def update(
        self, groups: list[TrainingGroup], resolved: Resolved, *, on_step: OnStep = lambda _: None, **more: Any
    ) -> dict[str, float]:
        """Train on one batch, as a learner does; what no server reports is left out of the metrics."""
        spans = [span for group in groups for rollout in group.rollouts for row in rollout.rows for span in row.spans]
        if other := {span.temperature for span in spans if span.logprobs is not None} - {1.0}:
            raise UpdateRejected(
                f"answers were sampled at temperature {min(other):g}; a Tinker server trains those of temperature 1",
                kind="invalid_batch",
                hint="set temperature: 1.0 of the LLM and in finetuning.sampling",
            )
        self.trained.sent.clear()
        metrics = super().update(groups, resolved, on_step=lambda step: on_step(_known(step)), **more)
        return _known(metrics) | {name: float(count) for name, count in self.trained.sent.items()}

    def _supports(self, loss: NamedLoss) -> bool:
        """Try the loss at its first use only, since a trial takes one of the server's places for adapters."""
        if loss.name not in self._known:
            self._known[loss.name] = supports(self.trained, *loss, self._policy.vocab_size)
        return self._known[loss.name]

    def _take_step(self, learning_rate: float, norm: float, *, must_move: bool = True) -> Change:
        del norm, must_move  # only the server sees its weights
        change = self.optimizer.step(learning_rate)
        check_finite(nan if change.grad_norm is None else change.grad_norm)
        self.step += 1
        return change


def at_targets(row: Row, logprobs: Sequence[float]) -> Tensor:
    """The log probabilities of the row's K sampled tokens, of those of all T targets."""
    return torch.tensor([logprobs[at] for at in row.positions], dtype=torch.float64)


def _known(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not isnan(value)}
