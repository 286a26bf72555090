"""Our algorithms as Tinker's named losses, with advantages for each token that make them the same loss.

A named loss is a sum over tokens of the advantage times a function of the ratio, so the weight of a token in our loss,
which depends on the aggregation, goes into its advantage. The ratio compares with the sampler's log probabilities.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nat.backend.algorithms.algorithm import PolicyLoss, RatioLevel
from nat.backend.algorithms.grpo import cispo, clip, sequence, token
from nat.backend.algorithms.registry import Resolved, resolve
from nat.backend.algorithms.sft import log_likelihood
from nat.backend.training.batch import Row
from nat.errors import AlgorithmError
from nat.tinker.remote.probe import Normalization
from nat.tinker.remote.service import Datum
from nat.wire.training import TrainingConfig

LOW, HIGH = "clip_low_threshold", "clip_high_threshold"
UNCLIPPED = 1e30
"""Norm of a gradient that no server reaches."""
_OF_THIS_MACHINE = ("micro_batch_tokens", "gradient_checkpointing")
_OF_ADAM = {"adam_beta1", "adam_beta2", "adam_epsilon"}
_ELSEWHERE = {"old_logprobs": "sampler", "importance_sampling_cap": None, "max_kl": None}
"""What a server makes of these settings, whatever the algorithm's defaults are."""


class NamedLoss(NamedTuple):
    """A loss of Tinker, and its configuration."""

    name: str
    config: Mapping[str, float]


def named_loss(resolved: Resolved) -> NamedLoss | None:
    """The named loss that is this algorithm's; None if there is none."""
    algorithm, config = resolved.algorithm, resolved.config
    low, high = max(0.0, 1 - config.epsilon), 1 + config.epsilon_high
    known: Mapping[tuple[PolicyLoss, RatioLevel], tuple[str, float, float]] = {
        (clip, token): ("ppo", low, high),
        (clip, sequence): ("gspo", low, high),
        (cispo, token): ("cispo", 0.0, high),
        # cross_entropy divides by the weights on some servers
        (log_likelihood, token): ("cispo", 1.0, 1.0),
    }
    found = known.get((algorithm.policy_loss, algorithm.importance_sampling_level))
    if found is None or algorithm.teacher_advantage is not None or algorithm.sequence_loss is not None:
        return None
    return NamedLoss(found[0], {LOW: found[1], HIGH: found[2]})


def settings(
    given: TrainingConfig, rate: float, server: Normalization, supported: Callable[[NamedLoss], bool]
) -> Resolved:
    """Give the settings that an update on a server uses.

    Raises:
        AlgorithmError: the server has no loss for the algorithm, or would not do what a setting says.

    """
    found = resolve(given)
    loss = named_loss(found)
    if loss is None or (loss.name == "gspo" and not supported(loss)):
        why = "has no loss for it" if loss is None else f"does not compute the loss {loss.name!r}"
        raise AlgorithmError(
            f"training.algorithm: {given.algorithm!r} cannot be trained there: the Tinker server {why}",
            hint="choose one of lite_ppo, grpo, dr_grpo, dapo, rloo, reinforce_pp, cispo, sft, rft; or train with "
            "`_type: local`",
        )
    if refused := list(_refused(given, found, server)):
        raise AlgorithmError("; ".join(refused), hint="leave it out, or train with `_type: local`")
    clipping = {} if server.clips else {"max_grad_norm": UNCLIPPED}
    return replace(found, config=found.config.model_copy(update=_ELSEWHERE | clipping)).with_learning_rate(rate)


def _refused(given: TrainingConfig, found: Resolved, server: Normalization) -> Iterator[str]:
    """What the server would not do, each with its reason."""
    chosen = given.model_dump(exclude_unset=True)
    for name in ("beta", "kl_penalty_coef"):
        if value := getattr(found.config, name):
            yield f"training.{name}: {value}, but a Tinker server computes no KL divergence to a reference"
    for name, value in _ELSEWHERE.items():
        if chosen.get(name, value) != value:
            yield f"training.{name}: {chosen[name]!r}, but only {value!r} is possible on a Tinker server"
    for name in chosen.keys() & set(_OF_THIS_MACHINE):
        yield f"training.{name}: without effect, since the weights are on a Tinker server"
    for name in _OF_ADAM & chosen.keys() if not server.has_adam else ():
        yield f"training.{name}: {chosen[name]}, but this Tinker server has AdamW's settings fixed"
    if "max_grad_norm" in chosen and not server.clips:
        yield f"training.max_grad_norm: {given.max_grad_norm}, but this Tinker server ignores it and clips nothing"


def datum_of(row: Row, advantages: Sequence[float], loss: NamedLoss) -> Datum:
    """A row as the server takes it, with an advantage for each of its K sampled tokens."""

    def spread(values: Sequence[float]) -> list[float]:
        own = dict(zip(row.positions, values, strict=True))
        return [own.get(at, 0.0) for at in range(len(row.input_ids))]

    inputs: dict[str, Sequence[float]] = {
        "target_tokens": [*row.input_ids[1:], row.targets[-1]],
        "logprobs": spread([logprob or 0.0 for logprob in row.sampler_logprobs]),
        "advantages": spread(advantages),
    }
    if loss.name == "gspo":
        inputs["sequence_ratio_mask"] = spread([1.0] * len(row.positions))
    return Datum(row.input_ids, inputs)
