"""One update: a batch of groups in, new weights and metrics out, or an error and the old weights.

    groups → rows with advantages → optimizer steps → micro-batches → loss → gradient → AdamW → checks

In the first optimizer step the policy is that of the update's start, so the forward pass that gives the gradient also
gives the log probabilities of the start. Those of rows that come later are computed before it. They are compared with
the sampler's, even if the ratio of the loss does not use them.

A batch may have tokens that earlier weights sampled. These train, weighted by the capped ratio, and are not compared.

Policy and reference score each token at the temperature that it was sampled at, as the sampler does. Log probabilities
of other weights or other tokens fail a check in checks.py.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite, isnan, sqrt
from random import Random
from statistics import fmean
from time import perf_counter

import torch

from nat.backend.algorithms.registry import Resolved, resolve
from nat.backend.memory import return_pages_if_short
from nat.backend.model import LoadedModel
from nat.backend.products import use_fastest_products
from nat.backend.training import checks
from nat.backend.training.agreement import Agreement, Moved
from nat.backend.training.batch import Batch, Row, make_batch, sampled_tokens_per_rollout
from nat.backend.training.completions import Completion, completions_of, mismatched, sequence_slopes
from nat.backend.training.loss import AnchorTable, ByRow, joined, rollout_weights
from nat.backend.training.metrics import TokenSums, batch_metrics, difference_metrics
from nat.backend.training.micro_batch import optimizer_steps
from nat.backend.training.mismatch import Probe, drawn_rows, policy_shift, sampler_difference
from nat.backend.training.optimizer import Change, MasterAdamW, learning_rate_at, usual_learning_rate
from nat.backend.training.passes import Passes, StepShare
from nat.backend.training.reference import Reference
from nat.errors import BatchRefused, UpdateRejected
from nat.wire.training import TrainingConfig, TrainingGroup

logger = logging.getLogger(__name__)

USUAL_DIFFERENCE = 0.05
"""Mean |Δ log p| of sampler and learner above which a warning says that the batch is not from the current weights."""

_AIM = 0.9
"""Share of the way to `max_kl` that a shortened update aims at, so that one attempt is usually enough."""
_SHORTEST = 0.1
_MOST_ATTEMPTS = 5

Report = Callable[[float], None]
"""Takes the percentage that is done; an exception from it cancels the update and restores the weights."""
OnStep = Callable[[dict[str, float]], None]
"""Takes the metrics of one optimizer step, right after it; `num_gradient_steps` counts the steps of the update."""


@dataclass(frozen=True)
class Delivered:
    """What came of the steps that a program took elsewhere."""

    weights: Mapping[str, torch.Tensor]
    """All trained weights, by name."""
    steps: Sequence[dict[str, float]]
    """Metrics of each optimizer step, as far as it told them."""
    metrics: Mapping[str, float]


Elsewhere = Callable[[Sequence[Row], ByRow, ByRow, Report], Delivered]
"""Trains on rows, with the policy's log probabilities and the reference's, if these are needed."""


@dataclass
class _Update:
    """State that the optimizer steps of one update share."""

    resolved: Resolved
    report: Report
    on_step: OnStep
    compared: str | None
    """Version of the weights whose tokens are compared with the policy; None compares all."""
    total: StepShare
    """Of all steps."""
    num_steps: int = 1
    completions: Sequence[Completion] = ()
    anchors: AnchorTable = field(default_factory=AnchorTable)
    steps_done: int = 0
    passes: int = 0
    passes_done: int = 0

    def advance(self) -> None:
        self.passes_done += 1
        self.report(100.0 * self.passes_done / self.passes)


class Learner:
    """Trains a loaded model; `step` counts its optimizer steps over all updates."""

    def __init__(self, policy: LoadedModel, reference: Reference, probe: Probe | None = None) -> None:
        self._policy = policy
        self.reference = reference
        use_fastest_products(policy.model)
        self.optimizer = MasterAdamW(policy.trainable_parameters())
        self._passes = Passes(policy)
        self._agreement = Agreement(policy, probe or Probe(), self._passes.score)
        self.step = 0
        self.first_step = 0
        """The step from which warmup and decay of the learning rate count."""

    def resolved(self, config: TrainingConfig) -> Resolved:
        """Give the settings that an update uses; AlgorithmError if they name no algorithm, or contradict it."""
        return resolved_for(config, self._policy)

    def begin_phase(self, resolved: Resolved) -> None:
        """Go on with another algorithm: fresh optimizer state and schedule, the current weights as reference."""
        self.optimizer.forget()
        self.first_step = self.step
        if _needs_reference(resolved):
            self.reference.begin_here()

    def update(
        self,
        groups: list[TrainingGroup],
        resolved: Resolved,
        *,
        report: Report = lambda _: None,
        on_step: OnStep = lambda _: None,
        compared: str | None = None,
        program: Elsewhere | None = None,
    ) -> dict[str, float]:
        """Train on one batch and give its metrics; a batch without any signal changes nothing.

        If a step fails, all steps of the update are undone, also those that `on_step` has seen. Tokens of other
        weights than those of the version `compared` are not compared. A `program` takes the steps elsewhere; its
        weights are used as they are, without the bound `max_kl`.

        Raises:
            UpdateRejected: a check failed; weights, optimizer state and step are as before.

        """
        started = perf_counter()
        resolved = resolved.with_learning_rate(_learning_rate_for(self._policy))
        batch = make_batch(groups, resolved)
        metrics = batch_metrics(batch)
        if batch.rows:
            self._policy.linears.forget()  # the update needs their memory, and makes them worthless
            return_pages_if_short()  # what sampling and the last update have left in pieces would add to its peak
            update = _Update(resolved, report, on_step, compared, StepShare(TokenSums(self._policy.device)))
            with self.all_or_nothing():
                if program is None:
                    metrics |= self._train(batch, update)
                else:
                    metrics |= self._train_elsewhere(program, batch, update)
        seconds = perf_counter() - started
        done = {"policy_step": self.step, "seconds": seconds, "tokens_per_second": metrics["row_tokens"] / seconds}
        return metrics | done

    def accumulate(
        self,
        rows: Sequence[Row],
        resolved: Resolved,
        *,
        gradient: bool = True,
        advance: Callable[[], None] = lambda: None,
    ) -> tuple[float, ByRow]:
        """Add the gradient of a loss over some rows to that of the next `apply`; gives the loss and log probabilities.

        The loss is the sum over all tokens of the rows, each with the weight of its row. If a pass fails, or
        BatchRefused is raised as the loss is not finite, the gradient is as before.
        """
        weights = dict.fromkeys((row.rollout for row in rows), 1.0)
        packed = self._passes.pack(rows, resolved.config)
        with self.optimizer.keeping_gradient(), torch.set_grad_enabled(gradient):
            share = self._passes.gradient(packed, weights, AnchorTable(), resolved, advance=advance)
            if not isfinite(loss := float(share.loss)):
                raise BatchRefused(f"the loss of the batch is {loss}", hint="send smaller advantages or weights")
        return loss, share.start

    def apply(self, config: TrainingConfig, learning_rate: float, *, max_norm: float) -> dict[str, float]:
        """Take one step along the accumulated gradient, and drop it."""
        self.optimizer.configure(config)
        with self.all_or_nothing():
            norm = self.optimizer.clip(max_norm)
            checks.check_finite(norm)
            change = self._take_step(learning_rate, norm, must_move=norm > 0 and learning_rate > 0)
        return {"grad_norm": norm, "learning_rate": learning_rate, "update_ratio": change.norm / change.size}

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Restore weights, optimizer state and step if the block fails."""
        step = self.step
        try:
            with self.optimizer.all_or_nothing():
                yield
        except BaseException:
            self.step = step
            self._policy.linears.forget()
            raise

    def _train(self, batch: Batch, update: _Update) -> dict[str, float]:
        rows, resolved, config = batch.rows, update.resolved, update.resolved.config
        self._agreement.measure_rounding(rows, config)
        steps = optimizer_steps(rows, config, self.step)
        by_sequence = resolved.algorithm.sequence_loss is not None
        needs_reference = _needs_reference(resolved)
        all_before = config.kl_penalty_coef > 0 or by_sequence
        in_first = {row.index for row in steps[0]}
        before = self._passes.pack(rows if all_before else [row for row in rows if row.index not in in_first], config)
        packed = self._passes.pack(rows, config) if needs_reference else []
        update.num_steps = len(steps)
        if by_sequence:
            update.completions = completions_of(rows, batch.pairs, resolved)
        update.passes = len(before) + len(packed) + sum(len(self._passes.pack(step, config)) for step in steps)
        update.anchors.start = self._passes.scores(self._passes.policy, before, update.advance)
        update.anchors.reference = self._passes.scores(self.reference.model, packed, update.advance)
        self.optimizer.configure(config)
        outcomes = [self._optimizer_step(step, update) for step in steps]
        sums = update.total.sums
        checks.check_gradient(
            update.steps_done,
            rows=len(rows),
            with_advantage=sums.with_advantage,
            clipped=sums.clipped,
            entropy=sums.means()["entropy"],
        )
        names = dict.fromkeys(name for outcome in outcomes for name in outcome)
        means = {name: fmean(outcome[name] for outcome in outcomes if name in outcome) for name in names}
        unseen = isnan(means["update_ratio"])  # where a server has the weights
        checks.check_weights_moved(
            0.0 if unseen else means["update_ratio"],
            moved=unseen or means["update_ratio"] > 0 or self.step - self.first_step < config.warmup_steps,
            learning_rate=means["learning_rate"],
            grad_norm=means["grad_norm"],
        )
        moved = self._move_within_reach(rows, update)
        for name in ("learning_rate", "update_ratio"):
            means[name] *= moved.share
        self._policy.linears.forget()
        served, seen = self._agreement.served(rows, moved, update.anchors.start, config), sums.sampler_difference
        if seen.mean > self._agreement.allowed(USUAL_DIFFERENCE):
            logger.warning("the batch was not sampled from the current weights: %s", seen)
        return {
            **sums.means(),
            **difference_metrics(seen),
            **means,
            **moved.metrics,
            **served,
            "usual_learning_rate": _learning_rate_for(self._policy) * resolved.algorithm.usual_rate,
            "packed_tokens": update.total.packed_tokens / config.num_iterations,
            "optimizer_steps": update.steps_done,
            "skipped_steps": len(steps) - update.steps_done,
        }

    def _train_elsewhere(self, program: Elsewhere, batch: Batch, update: _Update) -> dict[str, float]:
        """Take over the weights that a program makes of the batch, under the checks of our own updates."""
        resolved = update.resolved
        rows, config = batch.rows, resolved.config.model_copy(update={"max_kl": None})
        update.resolved = replace(resolved, config=config)
        self._agreement.measure_rounding(rows, config)
        packed = self._passes.pack(rows, config)
        update.anchors.start = self._passes.scores(self._passes.policy, packed)
        if _needs_reference(resolved):
            update.anchors.reference = self._passes.scores(self.reference.model, packed)
        seen = sampler_difference(rows, update.anchors.start)
        checks.check_sampler_logprobs(seen, self._agreement.allowed(config.max_logprob_difference))
        delivered = program(rows, update.anchors.start, update.anchors.reference, update.report)
        change = self.optimizer.replace(delivered.weights)
        if not change.moved:
            raise UpdateRejected(
                "the trainer program left the weights as they were: no weight changed",
                kind="weights_unchanged",
                hint="check that it trains the model at NAT_MODEL (and the adapter at NAT_ADAPTER), raise its learning "
                "rate, and save to NAT_OUTPUT after the last step",
            )
        update.steps_done = max(1, len(delivered.steps))
        self.step += update.steps_done
        self._policy.linears.forget()
        moved = self._move_within_reach(rows, update)
        served = self._agreement.served(rows, moved, update.anchors.start, config)
        for step in delivered.steps:
            update.on_step(step)
        ours = {"update_ratio": change.norm / change.size, "optimizer_steps": update.steps_done}
        return {**delivered.metrics, **difference_metrics(seen), **moved.metrics, **served, **ours}

    def _optimizer_step(self, rows: list[Row], update: _Update) -> dict[str, float]:
        resolved, config = update.resolved, update.resolved.config
        if config.kl_penalty_coef > 0:
            update.anchors.penalise(rows, config)
        of_sequences = self._compare_completions(rows, update) if update.completions else {}
        tokens = sampled_tokens_per_rollout(rows)
        weights_R = rollout_weights(torch.tensor(list(tokens.values())), resolved)
        weights = dict(zip(tokens, weights_R.tolist(), strict=True))
        self.optimizer.zero_grad()
        packed, compared = self._passes.pack(rows, config), update.compared
        share = self._passes.gradient(
            packed, weights, update.anchors, resolved, compared=compared, advance=update.advance
        )
        update.total.sums += share.sums
        update.total.packed_tokens += share.packed_tokens
        update.anchors.start |= share.start
        norm = self.optimizer.clip(config.max_grad_norm)
        checks.check_sampler_logprobs(
            update.total.sums.sampler_difference, self._agreement.allowed(config.max_logprob_difference)
        )
        factor = resolved.algorithm.learning_rate_factor(len(tokens), resolved.options)
        learning_rate = learning_rate_at(config, self.step - self.first_step) * factor
        outcome = {
            "loss": float(share.loss),
            "policy_loss": float(share.policy),
            "grad_norm": norm,
            "update_ratio": 0.0,
            "learning_rate": learning_rate,
            **of_sequences,
        }
        checks.check_finite(norm, over=f" over {sum(tokens.values())} tokens of {len(tokens)} rollouts")
        if norm > 0:  # else AdamW would move the weights by its momentum alone
            outcome |= self._take_step(learning_rate, norm).metrics
            update.steps_done += 1
        update.on_step(share.sums.means() | outcome | {"num_gradient_steps": float(update.num_steps)})
        return outcome

    def _take_step(self, learning_rate: float, norm: float, *, must_move: bool = True) -> Change:
        change = self.optimizer.step(learning_rate)
        moved = change.moved or not must_move
        checks.check_weights_moved(change.norm, moved=moved, learning_rate=learning_rate, grad_norm=norm)
        self.step += 1
        return change

    def _compare_completions(self, rows: list[Row], update: _Update) -> dict[str, float]:
        config, anchors, own = update.resolved.config, update.anchors, {row.index for row in rows}
        completions = [each for each in update.completions if each.parts[0].row in own]
        current = self._passes.score(rows, config) if update.steps_done else anchors.start
        metrics = {}
        if update.resolved.algorithm.needs_mismatched:
            metrics["mismatched_kl"] = self._mismatched_kl(rows, completions, config)
        found = sequence_slopes(completions, current, anchors.reference, update.resolved, **metrics)
        anchors.slopes = found.by_row
        return {"loss": found.loss, "policy_loss": found.loss, **found.metrics, **metrics}

    def _mismatched_kl(self, rows: list[Row], completions: Sequence[Completion], config: TrainingConfig) -> float:
        others = mismatched(rows, completions, longest=self._policy.max_seq_length)
        packed = self._passes.pack(others, config)
        current, reference = (
            self._passes.scores(weights, packed) for weights in (self._passes.policy, self.reference.model)
        )
        difference_K = joined(current, others) - joined(reference, others)
        return float(difference_K.sum(dtype=torch.float64)) / len(completions)

    def _move_within_reach(self, rows: list[Row], update: _Update) -> Moved:
        """Measure on random rows how far the policy moved; beyond `max_kl`, go back along the way that it came.

        What no advantage asked for grows with the square of the way, so its root says how much of the way to keep.
        """
        config, algorithm = update.resolved.config, update.resolved.algorithm
        advantages = algorithm.sequence_loss is None and algorithm.teacher_advantage is None
        sampled = [row for row in rows if None not in row.sampler_logprobs]
        drawn = drawn_rows(sampled, Random(f"{config.seed}/{self.step}/kl"))
        if not drawn:
            return Moved({})
        packed, share, shortened = self._passes.pack(drawn, config), 1.0, 0
        while True:
            after = self._passes.scores(self._passes.policy, packed)
            shift = policy_shift(drawn, update.anchors.start, after, advantages=advantages)
            if config.max_kl is None or not shift.unasked > config.max_kl or shortened == _MOST_ATTEMPTS:
                steps = update.steps_done
                found = {"approx_kl": shift.kl, "unasked_kl": shift.unasked, "kl_per_step": shift.kl / steps}
                return Moved(found | {"kept_share": share, "shortenings": shortened}, share, drawn, after)
            factor = max(_SHORTEST, _AIM * sqrt(config.max_kl / shift.unasked))
            self.optimizer.shorten(factor)
            share, shortened = factor * share, shortened + 1
            logger.info(
                "the update moved the policy by %.3g that no advantage asked for, more than max_kl: %.3g of it is kept",
                *(shift.unasked, share),
            )


def _needs_reference(resolved: Resolved) -> bool:
    config = resolved.config
    return config.beta > 0 or config.kl_penalty_coef > 0 or resolved.algorithm.sequence_loss is not None


def resolved_for(config: TrainingConfig, policy: LoadedModel) -> Resolved:
    """Give the settings that an update of these weights uses."""
    return resolve(config).with_learning_rate(_learning_rate_for(policy))


def _learning_rate_for(policy: LoadedModel) -> float:
    return usual_learning_rate(policy.width, lora=policy.peft is not None)
