"""One update: a batch of groups in, new weights and metrics out, or an error and the old weights.

    groups → rows with advantages → optimizer steps → micro-batches → loss → gradient → AdamW → proof

With one optimizer step the policy at its start is the policy of the step, so the forward pass that gives the
gradient also gives π_old. With several, π_old is computed once for all rows before the first of them.

The temperature is 1: the learner scores the distribution that the model defines, which is also what the sampler
reports; log probabilities of other weights or other tokens set off the alarm in checks.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor
from transformers import PreTrainedModel

from nat.backend.model import LoadedModel
from nat.backend.training.agreement import SamplerScore, difference, policy_shift, probe_rows
from nat.backend.training.batch import Row, make_batch, sampled_tokens_per_rollout
from nat.backend.training.checks import (
    check_gradient,
    check_sampler_logprobs,
    check_served_weights,
    check_weights_moved,
)
from nat.backend.training.logprobs import token_scores
from nat.backend.training.loss import rollout_weights
from nat.backend.training.metrics import TokenSums, batch_metrics
from nat.backend.training.micro_batch import MicroBatch, make_micro_batch
from nat.backend.training.objective import micro_batch_loss
from nat.backend.training.optimizer import MasterAdamW
from nat.backend.training.packing import deal, pack
from nat.backend.training.reference import Reference
from nat.wire.training import TrainingConfig, TrainingGroup

Report = Callable[[float], None]
"""Takes the percentage that is done; what it raises ends the update and leaves everything as before."""


@dataclass
class _Update:
    """What the optimizer steps of one update share; log probabilities are by row index."""

    config: TrainingConfig
    report: Report
    sums: TokenSums
    old: dict[int, Tensor] = field(default_factory=dict)
    reference: dict[int, Tensor] = field(default_factory=dict)
    passes: int = 0
    passes_done: int = 0

    def advance(self) -> None:
        self.passes_done += 1
        self.report(100.0 * self.passes_done / self.passes)


class Learner:
    """Trains a loaded model; `step` counts its optimizer steps over all updates."""

    def __init__(self, policy: LoadedModel, reference: Reference, sampler_score: SamplerScore) -> None:
        self._policy = policy
        self._reference = reference
        self._sampler_score = sampler_score
        self.optimizer = MasterAdamW(policy.trainable_parameters())
        self.step = 0

    def update(
        self, groups: list[TrainingGroup], config: TrainingConfig, *, report: Report = lambda _: None
    ) -> dict[str, float]:
        """Train on one batch and give its metrics; a batch without any signal changes nothing.

        Raises:
            UpdateRejected: an alarm went off; weights, optimizer state and step are as before.

        """
        started = perf_counter()
        batch = make_batch(groups, config)
        metrics = batch_metrics(groups, batch)
        if batch.rows:
            before, step = self.optimizer.snapshot(), self.step
            try:
                metrics |= self._train(batch.rows, config, report)
            except BaseException:
                self.optimizer.restore(before)
                self.step = step
                raise
        seconds = perf_counter() - started
        done = {"policy_step": self.step, "seconds": seconds, "tokens_per_second": metrics["packed_tokens"] / seconds}
        return metrics | done

    def _train(self, rows: list[Row], config: TrainingConfig, report: Report) -> dict[str, float]:
        steps = deal(rows, passes=config.num_iterations, steps_per_pass=config.steps_per_batch, seed=config.seed)
        needs_old, needs_reference = len(steps) > 1, config.beta > 0
        packed = pack(rows, config.micro_batch_tokens)
        update = _Update(config, report, TokenSums(self._policy.device))
        update.passes = len(packed) * (needs_old + needs_reference)
        update.passes += sum(len(pack(step, config.micro_batch_tokens)) for step in steps)
        if needs_old:
            update.old = self._scores(self._policy.model, packed, update.advance)
        if needs_reference:
            with self._reference.model() as reference:
                update.reference = self._scores(reference, packed, update.advance)
        self.optimizer.configure(config)
        outcomes = [self._optimizer_step(step, update) for step in steps]
        return {
            **update.sums.means(),
            **{name: sum(outcome[name] for outcome in outcomes) / len(outcomes) for name in outcomes[0]},
            **self._prove(rows, update),
            "optimizer_steps": len(steps),
        }

    def _optimizer_step(self, rows: list[Row], update: _Update) -> dict[str, float]:
        config = update.config
        tokens = sampled_tokens_per_rollout(rows)
        weights_R = rollout_weights(
            torch.tensor(list(tokens.values())), config.aggregation, max_completion_length=config.max_completion_length
        )
        weights = dict(zip(tokens, weights_R.tolist(), strict=True))
        self.optimizer.zero_grad()
        loss = sum(
            self._accumulate(make_micro_batch(part, weights, self._policy.device), update)
            for part in pack(rows, config.micro_batch_tokens)
        )
        norm = self.optimizer.clip(config.max_grad_norm)
        check_sampler_logprobs(update.sums.sampler_difference, config.max_logprob_difference)
        check_gradient(norm, tokens=sum(tokens.values()), rollouts=len(tokens))
        learning_rate = config.learning_rate * min(1.0, (self.step + 1) / max(1, config.warmup_steps))
        change, size = self.optimizer.step(learning_rate)
        check_weights_moved(change, learning_rate=learning_rate, grad_norm=norm)
        self.step += 1
        return {"loss": float(loss), "grad_norm": norm, "update_ratio": change / size, "learning_rate": learning_rate}

    def _accumulate(self, batch: MicroBatch, update: _Update) -> Tensor:
        """Add the gradient of one micro-batch; gives its share of the loss."""
        scores = token_scores(self._policy.model, batch.packed, batch.keep_K, batch.targets_K)
        if not all(row.index in update.old for row in batch.rows):
            update.old |= _by_row(batch.rows, scores.logprobs_K.detach())
        old_K = torch.cat([update.old[row.index] for row in batch.rows])
        reference = [update.reference[row.index] for row in batch.rows if update.reference]
        loss, values = micro_batch_loss(
            scores, batch, old_K, torch.cat(reference) if reference else None, update.config
        )
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        update.sums.add(values)
        update.advance()
        return loss.detach()

    @torch.no_grad()
    def _scores(
        self, model: PreTrainedModel, micro_batches: Sequence[Sequence[Row]], advance: Callable[[], None]
    ) -> dict[int, Tensor]:
        """Log probabilities of all sampled tokens, by row."""
        by_row: dict[int, Tensor] = {}
        for rows in micro_batches:
            batch = make_micro_batch(rows, {}, self._policy.device)
            by_row |= _by_row(rows, token_scores(model, batch.packed, batch.keep_K, batch.targets_K).logprobs_K)
            advance()
        return by_row

    def _prove(self, rows: list[Row], update: _Update) -> dict[str, float]:
        """Show on a few rows that the sampler serves the new weights, and measure how far the policy moved."""
        probe = probe_rows(rows)
        after = self._scores(self._policy.model, pack(probe, update.config.micro_batch_tokens), lambda: None)
        served = difference(probe, after, self._sampler_score(probe))
        check_served_weights(served, update.config.max_logprob_difference)
        return {
            "approx_kl": policy_shift(probe, update.old, after),
            "served_diff_mean": served.mean,
            "served_diff_max": served.largest,
        }


def _by_row(rows: Sequence[Row], values_K: Tensor) -> dict[int, Tensor]:
    parts = torch.split(values_K, [len(row.targets) for row in rows])
    return {row.index: part for row, part in zip(rows, parts, strict=True)}
