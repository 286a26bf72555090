"""The checks of an update; each raises an error with the numbers and a remedy.

Before a step, the learner must agree with the sampler's log probabilities, and the gradient must be finite. After it,
the weights must have changed. After all steps, one of them must have had a gradient, and the sampler must use the new
weights.
"""

import math
from dataclasses import dataclass

from nat.errors import UpdateRejected

_CERTAIN = 1e-3
"""Entropy in nats per token below which the model always gives the same answer."""


@dataclass(frozen=True)
class Difference:
    """|Δ log p| between two computations over the same tokens."""

    mean: float
    largest: float
    tokens: int

    def __str__(self) -> str:
        return f"mean |Δ log p| {self.mean:.4g} (largest {self.largest:.4g}) over {self.tokens} tokens"


def check_sampler_logprobs(seen: Difference, allowed: float) -> None:
    """Raise if the log probabilities in the batch are not those of the current weights.

    NaN passes here; the check of the gradient finds it.
    """
    if seen.mean > allowed:
        raise UpdateRejected(
            f"the log probabilities of the batch differ from the model's on the same tokens: {seen}, "
            f"allowed is {allowed:g}",
            kind="logprob_mismatch",
            hint="sample from this model's current weights, and send the exact token ids; a batch that was sampled "
            "several updates ago may need a higher max_logprob_difference",
        )


def check_served_weights(seen: Difference, allowed: float) -> None:
    """Raise if the sampler does not use the weights that the update made."""
    if not seen.mean <= allowed:
        raise UpdateRejected(
            f"after the update the sampler disagrees with the learner on the same tokens: {seen}, "
            f"allowed is {allowed:g}",
            kind="logprob_mismatch",
            hint="the update did not reach the sampler: report it, with the model's name; if the difference is just "
            "above the limit, train in float32, or raise max_served_difference",
        )


def check_weights_arrived(new: Difference, old: Difference) -> None:
    """Raise if the sampler is at least twice as near to the weights before the update as to those after it."""
    if 2 * old.mean < new.mean:
        raise UpdateRejected(
            f"after the update the sampler computes with earlier weights: it differs from them by {old}, and from the "
            f"new ones by {new}",
            kind="logprob_mismatch",
            hint="the update did not reach the sampler: report it, with the model's name",
        )


def check_finite(norm: float, *, over: str = "") -> None:
    """Raise if the gradient is not finite; `over` says of what it is."""
    if not math.isfinite(norm):
        raise UpdateRejected(
            f"the gradient is not finite (norm {norm}){over}",
            kind="gradient_not_finite",
            hint="lower the learning rate, check the rewards for extreme values, or train in float32",
        )


def check_gradient(steps: int, *, rows: int, with_advantage: float, clipped: float, entropy: float) -> None:
    """Raise if no optimizer step of the update found a gradient, although groups carried a signal.

    A single step may have none: its rollouts may equal the mean, or earlier steps may have reached the clip range.
    """
    if steps:
        return
    if with_advantage == 0:
        hint = (
            "the batch asks for no change: with algorithm: distill, name a teacher that answers otherwise than the "
            "student; with rewards of your own for steps or tokens, let them differ"
        )
    elif clipped >= with_advantage:
        hint = (
            "the model is too far from the weights that sampled: lower the learning rate, num_iterations or "
            "steps_per_batch, or raise epsilon"
        )
    elif entropy < _CERTAIN:
        hint = (
            "the model is certain of every token, so all of its answers are the same: continue from an earlier "
            "checkpoint with a lower learning rate"
        )
    else:
        hint = (
            "check that something is trainable, that rollouts with the same tokens get the same reward (otherwise they "
            "cancel each other out), and that the update before did not break the model: see its approx_kl"
        )
    raise UpdateRejected(
        f"the gradient is exactly zero over {rows} rows: {with_advantage:.0%} of the tokens have an advantage, "
        f"{clipped:.0%} are outside of the clip range, and the entropy per token is {entropy:.3g}",
        kind="gradient_zero",
        hint=hint,
    )


def check_weights_moved(change: float, *, moved: bool, learning_rate: float, grad_norm: float) -> None:
    """Raise if a step, or all steps of an update, changed no weight or made one infinite or NaN."""
    if not math.isfinite(change):
        raise UpdateRejected(
            f"the step made weights that are not finite (change {change}, learning rate {learning_rate:g})",
            kind="gradient_not_finite",
            hint="lower the learning rate or raise adam_epsilon",
        )
    if not moved:
        raise UpdateRejected(
            f"no weight changed, with learning rate {learning_rate:g} and gradient norm {grad_norm:.3g}",
            kind="weights_unchanged",
            hint="raise the learning rate: a step smaller than the precision of the weights rounds to nothing",
        )
