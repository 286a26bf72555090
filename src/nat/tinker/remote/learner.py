"""The learner of a Tinker server: rows, advantages, checks and metrics are ours, gradient and step are the server's.

The log probabilities that come with a gradient give the metrics of the loss here, too. After each update the server
saves its state; an update that fails is undone by reopening the state before it.

Shapes: K sampled tokens of a step.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import isnan, nan
from random import Random
from statistics import fmean
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from nat.backend.algorithms.registry import Resolved
from nat.backend.model import LoadedModel
from nat.backend.training.agreement import Agreement, Moved
from nat.backend.training.batch import Row, make_batch, sampled_tokens_per_rollout
from nat.backend.training.checks import check_finite, check_gradient, check_sampler_logprobs
from nat.backend.training.linear_cross_entropy import TokenScores
from nat.backend.training.loss import AnchorTable, ByRow, by_row, micro_batch_loss, rollout_weights
from nat.backend.training.metrics import TokenSums, batch_metrics
from nat.backend.training.micro_batch import make_micro_batch, optimizer_steps
from nat.backend.training.mismatch import Probe, compared_tokens, drawn_rows, policy_shift
from nat.backend.training.optimizer import learning_rate_at, usual_learning_rate
from nat.errors import UpdateRejected
from nat.tinker.remote.losses import UNCLIPPED, NamedLoss, datum_of, named_loss, settings
from nat.tinker.remote.probe import LOSS, Normalization, probed, supports
from nat.tinker.remote.service import Trained
from nat.wire.training import TrainingConfig, TrainingGroup

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")
_FORWARD = NamedLoss(LOSS, {})


class TinkerLearner:
    """Trains an adapter or all weights on a server, under the checks of our own updates."""

    def __init__(self, policy: LoadedModel, trained: Trained, probe: Probe) -> None:
        """`policy` has the tokenizer and the sizes alone."""
        self.trained = trained
        self.step = self.first_step = 0
        self._policy = policy
        self._agreement = Agreement(policy, probe, lambda rows, _: self._scores(rows))
        self._supported: dict[str, bool] = {}

    @cached_property
    def server(self) -> Normalization:
        """What the server makes of a batch, measured when it is first asked for."""
        found = probed(self.trained, self._policy.vocab_size)
        logger.info("the Tinker server: %s", found)
        return found

    def resolved(self, config: TrainingConfig) -> Resolved:
        """Give the settings that an update uses; AlgorithmError if the server would not do what one says."""
        rate = usual_learning_rate(self._policy.width, lora=self.trained.rank > 0)

        def supported(loss: NamedLoss) -> bool:
            """Try the loss at its first use only, since a trial takes one of the server's places for adapters."""
            if loss.name not in self._supported:
                self._supported[loss.name] = supports(self.trained, *loss, self._policy.vocab_size)
            return self._supported[loss.name]

        return settings(config, rate, self.server, supported)

    def begin_phase(self, resolved: Resolved) -> None:
        """Go on with a new optimizer and schedule; settings that compare with the weights of now are refused."""
        del resolved
        self.trained.begin(self.trained.state)
        self.first_step = self.step

    def update(
        self,
        groups: list[TrainingGroup],
        resolved: Resolved,
        *,
        report: Callable[[float], None] = lambda _: None,
        on_step: Callable[[dict[str, float]], None] = lambda _: None,
        compared: str | None = None,
        program: object = None,
    ) -> dict[str, float]:
        """Train on one batch; what no server reports is left out of the metrics.

        Raises:
            UpdateRejected: a check failed; the weights are as before.

        """
        assert program is None, "no program of this machine has the weights"
        spans = [span for group in groups for rollout in group.rollouts for row in rollout.rows for span in row.spans]
        if other := {span.temperature for span in spans if span.logprobs is not None} - {1.0}:
            raise UpdateRejected(
                f"answers were sampled at temperature {min(other):g}; a Tinker server trains those of temperature 1",
                kind="invalid_batch",
                hint="set temperature: 1.0 of the LLM and in finetuning.sampling",
            )
        started, step = perf_counter(), self.step
        self.trained.sent.clear()
        batch = make_batch(groups, resolved)
        metrics = batch_metrics(batch)
        if batch.rows:
            try:
                metrics |= self._train(batch.rows, resolved, report, on_step, compared)
                self.trained.save()
            except BaseException:
                self.step = step
                self.trained.resume(self.trained.state)
                raise
        seconds = perf_counter() - started
        metrics |= {"policy_step": self.step, "seconds": seconds, "tokens_per_second": metrics["row_tokens"] / seconds}
        return _known(metrics) | {name: float(count) for name, count in self.trained.sent.items()}

    def _train(
        self,
        rows: Sequence[Row],
        resolved: Resolved,
        report: Callable[[float], None],
        on_step: Callable[[dict[str, float]], None],
        compared: str | None,
    ) -> dict[str, float]:
        config, steps = resolved.config, optimizer_steps(rows, resolved.config, self.step)
        in_first = {row.index for row in steps[0]}
        anchors = AnchorTable(start=self._scores([row for row in rows if row.index not in in_first]))
        sums, outcomes, done = TokenSums(CPU), list[dict[str, float]](), 0
        for number, step_rows in enumerate(steps):
            of_step, outcome = self._optimizer_step(step_rows, resolved, anchors, sums, compared)
            done += outcome["grad_norm"] > 0
            outcomes.append(outcome)
            on_step(_known(of_step.means() | outcome | {"num_gradient_steps": float(len(steps))}))
            report(100.0 * (number + 1) / len(steps))
        check_gradient(
            done,
            rows=len(rows),
            with_advantage=sums.with_advantage,
            clipped=sums.clipped,
            entropy=sums.means()["entropy"],
        )
        moved = self._moved(rows, anchors.start, resolved, done)
        served = self._agreement.served(rows, moved, anchors.start, config)
        return {
            **sums.means(),
            **{name: fmean(outcome[name] for outcome in outcomes) for name in outcomes[0]},
            **moved.metrics,
            **served,
            "optimizer_steps": done,
            "skipped_steps": len(steps) - done,
        }

    def _optimizer_step(
        self, rows: Sequence[Row], resolved: Resolved, anchors: AnchorTable, sums: TokenSums, compared: str | None
    ) -> tuple[TokenSums, dict[str, float]]:
        """Have the server add the gradient of the rows and take the step; `sums` and `anchors` get what it gave."""
        config, tokens = resolved.config, sampled_tokens_per_rollout(rows)
        weights_R = rollout_weights(torch.tensor(list(tokens.values())), resolved)
        batch = make_micro_batch(rows, dict(zip(tokens, weights_R.tolist(), strict=True)), CPU)
        advantages = by_row(rows, batch.advantages_K * batch.weights_K)
        for row in rows:
            advantages[row.index] *= self.server.scale(len(row.input_ids), len(rows))
        found = self._sent(rows, advantages, named_loss(resolved) or _FORWARD)  # settings without one were refused
        anchors.start |= {index: logprobs for index, logprobs in found.items() if index not in anchors.start}
        logprobs_K = torch.cat([found[row.index] for row in rows]).requires_grad_()
        scores = TokenScores(logprobs_K, torch.full_like(logprobs_K, nan))
        loss, values = micro_batch_loss(scores, batch, anchors.of(rows), resolved)
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        assert logprobs_K.grad is not None, "the loss depends on them"
        of_step = TokenSums(CPU)
        of_step.add(values, compared_tokens(rows, compared))
        sums += of_step
        check_sampler_logprobs(sums.sampler_difference, self._agreement.allowed(config.max_logprob_difference))
        factor = resolved.algorithm.learning_rate_factor(len(tokens), resolved.options)
        rate = learning_rate_at(config, self.step - self.first_step) * factor
        # The norm of the weights' gradient is known after the step; it is 0 or not finite if this one is.
        norm = float(logprobs_K.grad.norm())
        check_finite(norm, over=f" over {sum(tokens.values())} tokens of {len(tokens)} rollouts")
        if norm > 0:
            norm = self.trained.step(
                learning_rate=rate,
                beta1=config.adam_beta1,
                beta2=config.adam_beta2,
                eps=config.adam_epsilon,
                weight_decay=config.weight_decay,
                grad_clip_norm=0.0 if config.max_grad_norm >= UNCLIPPED else config.max_grad_norm,
            )
            check_finite(norm)
            self.step += 1
        return of_step, {
            "loss": float(loss.detach()),
            "policy_loss": float(values.policy_loss),
            "grad_norm": norm,
            "learning_rate": rate,
        }

    def _moved(self, rows: Sequence[Row], start: ByRow, resolved: Resolved, steps: int) -> Moved:
        """How far the update moved the policy, on random rows."""
        sampled = [row for row in rows if None not in row.sampler_logprobs]
        drawn = drawn_rows(sampled, Random(f"{resolved.config.seed}/{self.step}/kl"))
        if not drawn:
            return Moved({})
        after = self._scores(drawn)
        shift = policy_shift(drawn, start, after)
        found = {"approx_kl": shift.kl, "unasked_kl": shift.unasked, "kl_per_step": shift.kl / steps}
        return Moved(found, 1.0, drawn, after)

    def _scores(self, rows: Sequence[Row]) -> ByRow:
        """The log probabilities of the rows' sampled tokens under the trained weights."""
        nothing = {row.index: torch.zeros(len(row.targets)) for row in rows}
        return self._sent(rows, nothing, _FORWARD, gradient=False) if rows else {}

    def _sent(self, rows: Sequence[Row], advantages: ByRow, loss: NamedLoss, *, gradient: bool = True) -> ByRow:
        data = [datum_of(row, advantages[row.index].tolist(), loss) for row in rows]
        empty = datum_of(rows[0], [0.0] * len(rows[0].targets), loss)
        data += [empty] * (self.server.filled(len(data)) - len(data))
        found = self.trained.forward_backward(data, *loss, gradient=gradient)[: len(rows)]
        return {row.index: at_targets(row, logprobs) for row, logprobs in zip(rows, found, strict=True)}


def at_targets(row: Row, logprobs: Sequence[float]) -> Tensor:
    """The log probabilities of the row's K sampled tokens, of those of all T targets."""
    return torch.tensor([logprobs[at] for at in row.positions], dtype=torch.float64)


def _known(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not isnan(value)}
