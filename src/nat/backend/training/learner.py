"""One update: a batch of groups in, new weights and metrics out, or an error and the old weights.

    groups → rows with advantages → optimizer steps → micro-batches → loss → gradient → AdamW → checks

In the first optimizer step the policy is that of the update's start, so the forward pass that gives the gradient also
gives the log probabilities of the start. Those of rows that come later are computed before it. They are compared with
the sampler's, even if the ratio of the loss does not use them.

With a `WeightPair`, requests are answered from one copy of the weights while the other is trained, so a batch may come
from the weights of one update ago. Its tokens are compared with the weights that sampled them.

Policy and reference score each token at the temperature that it was sampled at, as the sampler does. Log probabilities
of other weights or other tokens fail a check in checks.py.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import sqrt
from random import Random
from statistics import fmean
from time import perf_counter

import torch
from transformers import PreTrainedModel

from nat.backend.algorithms.registry import Resolved, resolve
from nat.backend.devices import widest_dtype
from nat.backend.memory import return_pages_if_short
from nat.backend.model import LoadedModel
from nat.backend.training.agreement import Agreement, Moved
from nat.backend.training.batch import Batch, Row, make_batch, sampled_tokens_per_rollout
from nat.backend.training.checkpointing import Checkpointing
from nat.backend.training.checks import (
    Difference,
    check_finite,
    check_gradient,
    check_sampler_logprobs,
    check_weights_moved,
)
from nat.backend.training.completions import Completion, completions_of, mismatched, sequence_slopes
from nat.backend.training.fast_linear import use_fastest_products
from nat.backend.training.loss import AnchorTable, ByRow, Loss, by_row, joined, micro_batch_loss, rollout_weights
from nat.backend.training.metrics import TokenSums, batch_metrics, difference_metrics
from nat.backend.training.micro_batch import MicroBatch, make_micro_batch, optimizer_steps, pack
from nat.backend.training.mismatch import (
    OWN_PROBE,
    Probe,
    compared_tokens,
    drawn_rows,
    earlier_difference,
    policy_shift,
)
from nat.backend.training.optimizer import MasterAdamW, learning_rate_at, usual_learning_rate
from nat.backend.training.reference import Reference
from nat.backend.training.weight_pair import WeightPair
from nat.sizing.rules import micro_batch_tokens
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
class _Earlier:
    """Tokens of a batch that the weights before the last update sampled."""

    version: str
    seen: Difference
    """How far those weights are from the sampler's log probabilities, on some of the rows."""


@dataclass(frozen=True)
class _Callbacks:
    """Who is told of an update, and what is known of tokens from earlier weights."""

    report: Report
    on_step: OnStep
    earlier: _Earlier | None


@dataclass
class _Update:
    """State that the optimizer steps of one update share."""

    resolved: Resolved
    watchers: _Callbacks
    sums: TokenSums
    num_steps: int
    completions: Sequence[Completion] = ()
    anchors: AnchorTable = field(default_factory=AnchorTable)
    steps_done: int = 0
    packed_tokens: int = 0
    passes: int = 0
    passes_done: int = 0

    def advance(self) -> None:
        self.passes_done += 1
        self.watchers.report(100.0 * self.passes_done / self.passes)


class Learner:
    """Trains a loaded model; `step` counts its optimizer steps over all updates."""

    def __init__(self, policy: LoadedModel, reference: Reference, probe: Probe = OWN_PROBE) -> None:
        self._policy = policy
        self._reference = reference
        self._agreement = Agreement(policy, probe, self._score)
        use_fastest_products(policy.model)
        self._checkpointing = Checkpointing(policy.model)
        self._enough_tokens = micro_batch_tokens(policy.widest, cpu=policy.device.type == "cpu")
        self.optimizer = MasterAdamW(policy.trainable_parameters())
        self.step = 0
        self.first_step = 0
        """The step from which warmup and decay of the learning rate count."""

    def begin_phase(self, resolved: Resolved) -> None:
        """Go on with another algorithm: fresh optimizer state and schedule, the current weights as reference."""
        self.optimizer.forget()
        self.first_step = self.step
        if _needs_reference(resolved):
            self._reference.begin_here()

    def update(
        self,
        groups: list[TrainingGroup],
        resolved: Resolved,
        *,
        report: Report = lambda _: None,
        on_step: OnStep = lambda _: None,
        pair: WeightPair | None = None,
    ) -> dict[str, float]:
        """Train on one batch and give its metrics; a batch without any signal changes nothing.

        If a step fails, all steps of the update are undone, also those that `on_step` has seen. With a `pair`, its
        second copy is trained, and `report` may put the served one in place.

        Raises:
            UpdateRejected: a check failed; weights, optimizer state and step are as before.

        """
        started = perf_counter()
        resolved = resolved.with_learning_rate(_learning_rate_for(self._policy))
        batch = make_batch(groups, resolved)
        metrics = batch_metrics(batch)
        if batch.rows:
            if pair is None:
                self._policy.linears.forget()  # the update needs their memory, and makes them worthless
                return_pages_if_short()  # what sampling and the last update have left in pieces would add to its peak
            earlier = None if pair is None else self._earlier(batch.rows, resolved, pair)
            watchers = _Callbacks(report, on_step, earlier)
            with nullcontext() if pair is None else pair.training(), self.all_or_nothing():
                metrics |= self._train(batch, resolved, watchers)
                if pair is not None:
                    pair.finish_requests()
            if pair is not None:
                self._policy.linears.forget()
        seconds = perf_counter() - started
        done = {"policy_step": self.step, "seconds": seconds, "tokens_per_second": metrics["row_tokens"] / seconds}
        return metrics | done

    def rehearse(self, rows: Sequence[Row], resolved: Resolved) -> float:
        """Give the seconds of a forward and backward pass over a micro-batch of these rows; nothing changes."""
        choice, batch = resolved.config.gradient_checkpointing, self._micro_batch(rows, {})
        started = perf_counter()
        try:
            with self._checkpointing.forward(choice, self._num_tokens(batch)):
                scores = batch.scores(self._policy.model)
            scores.logprobs_K.mean().backward()  # type: ignore[no-untyped-call]  # torch declares it without types
            return perf_counter() - started
        finally:
            self.optimizer.zero_grad()

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

    def _earlier(self, rows: list[Row], resolved: Resolved, pair: WeightPair) -> _Earlier | None:
        """Check some of the rows that the weights of one update ago sampled, against those weights."""
        config, version = resolved.config, pair.earlier_version
        own = [row for row in rows if version is not None and version in (row.policy_versions or ())]
        if version is None or not own:
            return None
        drawn = drawn_rows(own, Random(f"{config.seed}/{self.step}/earlier"))  # noqa: S311 - a sample, not a secret
        with pair.earlier():
            scored = self._scores(self._policy_weights, self._pack(drawn, config), lambda: None)
        seen = earlier_difference(drawn, version, scored)
        check_sampler_logprobs(seen, self._agreement.allowed(config.max_logprob_difference), earlier_version=version)
        return _Earlier(version, seen)

    def _train(self, batch: Batch, resolved: Resolved, watchers: _Callbacks) -> dict[str, float]:
        rows, config, earlier = batch.rows, resolved.config, watchers.earlier
        self._agreement.measure_rounding(rows, config)
        steps = optimizer_steps(rows, config, self.step)
        by_sequence = resolved.algorithm.sequence_loss is not None
        needs_reference = _needs_reference(resolved)
        all_before = config.kl_penalty_coef > 0 or by_sequence
        in_first = {row.index for row in steps[0]}
        before = self._pack(rows if all_before else [row for row in rows if row.index not in in_first], config)
        packed = self._pack(rows, config) if needs_reference else []
        update = _Update(resolved, watchers, TokenSums(self._policy.device), len(steps))
        if by_sequence:
            update.completions = completions_of(rows, batch.pairs, resolved)
        update.passes = len(before) + len(packed) + sum(len(self._pack(step, config)) for step in steps)
        update.anchors.start = self._scores(self._policy_weights, before, update.advance)
        update.anchors.reference = self._scores(self._reference.model, packed, update.advance)
        self.optimizer.configure(config)
        outcomes = [self._optimizer_step(step, update) for step in steps]
        sums = update.sums
        check_gradient(
            update.steps_done,
            rows=len(rows),
            with_advantage=sums.with_advantage,
            clipped=sums.clipped,
            entropy=sums.means()["entropy"],
        )
        names = dict.fromkeys(name for outcome in outcomes for name in outcome)
        means = {name: fmean(outcome[name] for outcome in outcomes if name in outcome) for name in names}
        check_weights_moved(
            means["update_ratio"],
            moved=means["update_ratio"] > 0 or self.step - self.first_step < config.warmup_steps,
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
            **difference_metrics(seen.joined(None if earlier is None else earlier.seen)),
            **means,
            **moved.metrics,
            **served,
            "usual_learning_rate": _learning_rate_for(self._policy) * resolved.algorithm.usual_rate,
            "packed_tokens": update.packed_tokens / config.num_iterations,
            "optimizer_steps": update.steps_done,
            "skipped_steps": len(steps) - update.steps_done,
        }

    def _optimizer_step(self, rows: list[Row], update: _Update) -> dict[str, float]:
        resolved, config, sums = update.resolved, update.resolved.config, TokenSums(self._policy.device)
        if config.kl_penalty_coef > 0:
            update.anchors.penalise(rows, config.kl_penalty_coef)
        of_sequences = self._compare_completions(rows, update) if update.completions else {}
        tokens = sampled_tokens_per_rollout(rows)
        weights_R = rollout_weights(torch.tensor(list(tokens.values())), resolved)
        weights = dict(zip(tokens, weights_R.tolist(), strict=True))
        self.optimizer.zero_grad()
        losses = [self._accumulate(self._micro_batch(part, weights), update, sums) for part in self._pack(rows, config)]
        norm = self.optimizer.clip(config.max_grad_norm)
        check_sampler_logprobs(update.sums.sampler_difference, self._agreement.allowed(config.max_logprob_difference))
        factor = resolved.algorithm.learning_rate_factor(len(tokens), resolved.options)
        learning_rate = learning_rate_at(config, self.step - self.first_step) * factor
        outcome = {
            "loss": float(sum(loss.total for loss in losses)),
            "policy_loss": float(sum(loss.policy for loss in losses)),
            "grad_norm": norm,
            "update_ratio": 0.0,
            "learning_rate": learning_rate,
            **of_sequences,
        }
        check_finite(norm, tokens=sum(tokens.values()), rollouts=len(tokens))
        if norm > 0:  # else AdamW would move the weights by its momentum alone
            change = self.optimizer.step(learning_rate)
            check_weights_moved(change.norm, moved=change.moved, learning_rate=learning_rate, grad_norm=norm)
            outcome["update_ratio"] = change.norm / change.size
            self.step += 1
            update.steps_done += 1
        update.watchers.on_step(sums.means() | outcome | {"num_gradient_steps": float(update.num_steps)})
        return outcome

    def _compare_completions(self, rows: list[Row], update: _Update) -> dict[str, float]:
        """Set the slopes of a sequence loss over the completions of an optimizer step; gives its value and metrics."""
        config, anchors, own = update.resolved.config, update.anchors, {row.index for row in rows}
        completions = [each for each in update.completions if each.parts[0].row in own]
        current = anchors.start
        if update.steps_done:
            current = self._score(rows, config)
        metrics = {}
        if update.resolved.algorithm.needs_mismatched:
            metrics["mismatched_kl"] = self._mismatched_kl(rows, completions, config)
        found = sequence_slopes(completions, current, anchors.reference, update.resolved, **metrics)
        anchors.slopes = found.by_row
        return {"loss": found.loss, "policy_loss": found.loss, **found.metrics, **metrics}

    def _mismatched_kl(self, rows: list[Row], completions: Sequence[Completion], config: TrainingConfig) -> float:
        """The mean over completions of log π - log π_ref of answers to other prompts."""
        others = mismatched(rows, completions, longest=self._policy.max_seq_length)
        packed = self._pack(others, config)
        current, reference = (
            self._scores(weights, packed, lambda: None) for weights in (self._policy_weights, self._reference.model)
        )
        difference_K = joined(current, others) - joined(reference, others)
        return float(difference_K.sum(dtype=widest_dtype(difference_K.device))) / len(completions)

    def _pack(self, rows: Sequence[Row], config: TrainingConfig) -> list[list[Row]]:
        return pack(rows, config.micro_batch_tokens, self._enough_tokens, shares=self._policy.plain is None)

    def _micro_batch(self, rows: Sequence[Row], weights: Mapping[int, float]) -> MicroBatch:
        batch = make_micro_batch(rows, weights, self._policy.device)
        self._checkpointing.check_room(self._num_tokens(batch))
        return batch

    def _num_tokens(self, batch: MicroBatch) -> int:
        """Tokens that a pass over the micro-batch computes."""
        return len(batch.packed.token_ids_T) if self._policy.plain is None else batch.packed.num_row_tokens

    def _accumulate(self, batch: MicroBatch, update: _Update, sums: TokenSums) -> Loss:
        """Add the gradient of one micro-batch; gives its share of the loss."""
        num_tokens = self._num_tokens(batch)
        with self._checkpointing.forward(update.resolved.config.gradient_checkpointing, num_tokens):
            scores = batch.scores(self._policy.model)
        if not all(row.index in update.anchors.start for row in batch.rows):
            update.anchors.start |= by_row(batch.rows, scores.logprobs_K.detach())
        loss, values = micro_batch_loss(scores, batch, update.anchors.of(batch.rows), update.resolved)
        loss.total.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        earlier = update.watchers.earlier
        compared_K = compared_tokens(batch.rows, None if earlier is None else earlier.version)
        for each in (sums, update.sums):
            each.add(values, None if compared_K is None else compared_K.to(self._policy.device))
        update.packed_tokens += num_tokens
        update.advance()
        return Loss(loss.total.detach(), loss.policy)

    def _policy_weights(self) -> AbstractContextManager[PreTrainedModel]:
        return nullcontext(self._policy.model)

    @torch.no_grad()
    def _scores(
        self,
        weights: Callable[[], AbstractContextManager[PreTrainedModel]],
        micro_batches: Sequence[Sequence[Row]],
        advance: Callable[[], None],
    ) -> ByRow:
        """Score all sampled tokens; gives log probabilities by row.

        The weights are in place for one micro-batch at a time, because `advance` may answer requests with others.
        """
        found: ByRow = {}
        for rows in micro_batches:
            batch = self._micro_batch(rows, {})
            with weights() as model:
                found |= by_row(rows, batch.scores(model).logprobs_K)
            advance()
        return found

    def _score(self, rows: Sequence[Row], config: TrainingConfig) -> ByRow:
        return self._scores(self._policy_weights, self._pack(rows, config), lambda: None)

    def _move_within_reach(self, rows: list[Row], update: _Update) -> Moved:
        """Measure on random rows how far the policy moved; beyond `max_kl`, go back along the way that it came.

        What no advantage asked for grows with the square of the way, so its root says how much of the way to keep.
        """
        config, algorithm = update.resolved.config, update.resolved.algorithm
        advantages = algorithm.sequence_loss is None and algorithm.teacher_advantage is None
        sampled = [row for row in rows if None not in row.sampler_logprobs]
        drawn = drawn_rows(sampled, Random(f"{config.seed}/{self.step}/kl"))  # noqa: S311 - a sample, not a secret
        if not drawn:
            return Moved({})
        packed, share, shortened = self._pack(drawn, config), 1.0, 0
        while True:
            after = self._scores(self._policy_weights, packed, lambda: None)
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
    """Give the settings that an update of these weights uses.

    Raises:
        AlgorithmError: the settings name no algorithm, or contradict it.

    """
    return resolve(config).with_learning_rate(_learning_rate_for(policy))


def _learning_rate_for(policy: LoadedModel) -> float:
    return usual_learning_rate(policy.width, lora=policy.peft is not None)
