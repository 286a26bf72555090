"""Tinker's losses as factors of the backend's, and the rows of a batch.

A loss is the sum over all tokens, with nothing divided: callers scale their advantages and weights. The definitions are
those of Tinker's documentation, with log ratios bounded as in all of our losses. q are the log probabilities that the
caller sends, and r = exp(log π - q):

    cross_entropy         -w log π
    importance_sampling   -r A
    ppo                   -min(r A, clip(r, low, high) A)
    cispo                 -sg(clip(r, low, high)) A log π
    gspo                  as ppo; r has the geometric mean's value over `sequence_ratio_mask`, and each token's gradient
    dro                   -(A log π - β/2 (log π - q)²)

Shapes: K tokens of a micro-batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from torch import Tensor

from nat.backend.algorithms.algorithm import AlgorithmOptions, PolicyLoss, PolicyTerm, PolicyTokens, RatioLevel
from nat.backend.algorithms.grpo import GRPO, clip, sequence, token
from nat.backend.algorithms.registry import Resolved
from nat.backend.algorithms.sft import log_likelihood
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.errors import BatchRefused, did_you_mean, one_of
from nat.tinker.server.wire import Batch, Datum
from nat.wire.training import TrainingConfig

TARGETS, LOGPROBS, ADVANTAGES, WEIGHTS = "target_tokens", "logprobs", "advantages", "weights"
MASK = "sequence_ratio_mask"
LOW, HIGH, BETA = "clip_low_threshold", "clip_high_threshold", "beta"


class TinkerOptions(AlgorithmOptions):
    """What a loss has besides its bounds of the ratio."""

    beta: float


def bounded_weight(tokens: PolicyTokens) -> PolicyTerm:
    """Give sg(clip(r, low, high)) · A · log π."""
    weight_K = tokens.log_ratio_K.detach().exp().clamp(1 - tokens.epsilon, 1 + tokens.epsilon_high)
    return log_likelihood(replace(tokens, advantages_K=weight_K * tokens.advantages_K))


def quadratic(tokens: PolicyTokens) -> PolicyTerm:
    """Give A · log π - β/2 · (log π - q)²."""
    term = log_likelihood(tokens)
    penalty_K = 0.5 * tokens.options.beta * (tokens.logprobs_K - tokens.old_logprobs_K) ** 2
    return term._replace(objective_K=term.objective_K - penalty_K)


def sequence_token(log_ratio_K: Tensor, row_K: Tensor, num_rows: int) -> Tensor:
    """The value of a row's geometric mean, with each token's own gradient."""
    fixed_K = log_ratio_K.detach()
    return sequence(fixed_K, row_K, num_rows) + log_ratio_K - fixed_K


@dataclass(frozen=True)
class Loss:
    """A loss of the table above."""

    policy: PolicyLoss
    needs: frozenset[str] = frozenset({TARGETS, LOGPROBS, ADVANTAGES})
    allows: frozenset[str] = frozenset({WEIGHTS})
    """Weights multiply the advantages, in which all losses but `dro` are linear."""
    settings: Mapping[str, float | None] = field(default_factory=dict)
    """With their defaults; None for one that a caller must choose."""
    level: RatioLevel = token


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(log_likelihood, needs=frozenset({TARGETS})),
    "importance_sampling": Loss(clip),
    "ppo": Loss(clip, settings={LOW: 0.8, HIGH: 1.2}),
    "cispo": Loss(bounded_weight, settings={LOW: 0.0, HIGH: 4.0}),
    "gspo": Loss(clip, Loss.needs | {MASK}, settings={LOW: None, HIGH: None}, level=sequence_token),
    "dro": Loss(quadratic, allows=frozenset(), settings={BETA: None}),
}


def resolved(name: str, config: Mapping[str, float | str]) -> Resolved:
    """The backend's settings for one of Tinker's losses.

    Raises:
        BatchRefused: there is no such loss, or it has no such setting, or lacks one.

    """
    if (loss := LOSSES.get(name)) is None:
        raise BatchRefused(
            f"loss_fn {name!r} is not supported; there are {one_of(LOSSES)}.{did_you_mean(name, LOSSES)}",
            hint="compute another loss with forward_backward_custom, which runs it in the client",
        )
    if unknown := sorted(config.keys() - loss.settings.keys()):
        raise BatchRefused(f"loss_fn_config.{unknown[0]}: {name} has {one_of(loss.settings)}", hint="leave it out")
    chosen: dict[str, float] = {LOW: -inf, HIGH: inf, BETA: 0.0}
    for key, value in {**loss.settings, **config}.items():
        if not isinstance(value, float | int) or not 0 <= value < inf:
            raise BatchRefused(f"loss_fn_config.{key} of {name} is {value!r}; set it to a number, 0 or more")
        chosen[key] = value
    if chosen[LOW] > chosen[HIGH]:
        raise BatchRefused(f"loss_fn_config: {LOW} is {chosen[LOW]}, above {HIGH}, {chosen[HIGH]}; swap them")
    ratio = {"epsilon": 1 - chosen[LOW], "epsilon_high": chosen[HIGH] - 1}
    return Resolved(
        replace(GRPO, name=f"tinker {name}", policy_loss=loss.policy, importance_sampling_level=loss.level),
        TrainingConfig(old_logprobs="sampler", importance_sampling_cap=None).model_copy(update=ratio),
        TinkerOptions(beta=chosen[BETA]),
    )


def rows_of(batch: Batch, loaded: LoadedModel) -> list[Row]:
    """The rows of a batch; `rollout` is the datum. One with a mask has two rows: its masked tokens, and the others.

    Raises:
        BatchRefused: a datum lacks what its loss needs, has more, or does not fit the model.

    """
    if not batch.data:
        raise BatchRefused("the batch has no data; send at least one datum")
    rows: list[Row] = []
    for number, datum in enumerate(batch.data):
        if finding := next(_findings(datum, LOSSES[batch.loss], loaded), None):
            raise BatchRefused(f"data.{number}.{finding}")
        rows.extend(_rows(datum, number, len(rows)))
    return rows


def _rows(datum: Datum, number: int, first: int) -> Iterator[Row]:
    inputs = datum.inputs
    every, advantages = np.arange(len(datum.token_ids)), inputs.get(ADVANTAGES, 1.0)
    advantages = advantages * inputs.get(WEIGHTS, np.ones(len(every)))
    masked = inputs[MASK] != 0 if MASK in inputs else every >= 0
    for index, at in enumerate((part for part in (every[masked], every[~masked]) if len(part)), first):
        yield Row(
            index=index,
            group=0,  # rows with a common beginning then stand side by side
            rollout=number,
            input_ids=datum.token_ids.tolist(),
            positions=at.tolist(),
            targets=inputs[TARGETS][at].astype(int).tolist(),
            sampler_logprobs=inputs[LOGPROBS][at].tolist() if LOGPROBS in inputs else [None] * len(at),
            advantages=advantages[at].tolist(),
        )


def _findings(datum: Datum, loss: Loss, loaded: LoadedModel) -> Iterator[str]:
    """What is wrong with a datum, each with its place."""
    inputs, length, size = datum.inputs, len(datum.token_ids), loaded.vocab_size
    for name in sorted(loss.needs - inputs.keys()):
        yield f"loss_fn_inputs lacks {name}, which the loss needs"
    for name in sorted(inputs.keys() - loss.needs - loss.allows):
        yield f"loss_fn_inputs.{name}: the loss has only {one_of(loss.needs | loss.allows)}; leave it out"
    if not 1 <= length <= loaded.max_seq_length:
        yield f"model_input has {length} tokens; wanted are 1 to {loaded.max_seq_length}"
    for name, values in inputs.items():
        if len(values) != length or not np.isfinite(values).all():
            yield f"loss_fn_inputs.{name} has {len(values)} values; wanted are {length}, all finite"
    for name, ids in (("model_input", datum.token_ids), (f"loss_fn_inputs.{TARGETS}", inputs[TARGETS])):
        if (wrong := ids[(ids < 0) | (ids >= size) | (ids != np.floor(ids))]).size:
            yield f"{name} has {wrong[0]}, which is no token of the vocabulary of {size}"
    if WEIGHTS in inputs and ADVANTAGES in inputs and (inputs[WEIGHTS] < 0).any():
        yield f"loss_fn_inputs.{WEIGHTS}: advantages have a negative weight"
    if MASK in inputs and inputs[ADVANTAGES][inputs[MASK] == 0].any():
        yield f"loss_fn_inputs.{ADVANTAGES}: some are where {MASK} is 0, so there is no ratio"
