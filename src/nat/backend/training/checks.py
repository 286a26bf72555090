"""The alarms of an update: each compares numbers, and raises with them and a remedy.

Before a step: the learner must agree with the log probabilities that came with the tokens, and the gradient must be
a number. After it: the weights must have moved. After all: some step must have had a gradient that is not zero, and the
sampler's own path must see the new weights.
"""

import math
from dataclasses import dataclass

from nat.errors import UpdateRejected


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

    A difference that is no number is left to the check of the gradient, which then is none either.
    """
    if seen.mean > allowed:
        raise UpdateRejected(
            f"the log probabilities that came with the batch are not those of the model on the same tokens: {seen}, "
            f"allowed is {allowed:g}",
            kind="logprob_mismatch",
            hint="sample from this model's current weights, and send the exact token ids; a batch that was sampled "
            "several updates ago may need a higher max_logprob_difference",
        )


def check_served_weights(seen: Difference, allowed: float) -> None:
    """Raise if the sampler's path does not compute with the weights that the update made."""
    if not seen.mean <= allowed:
        raise UpdateRejected(
            f"after the update the sampler disagrees with the learner on the same tokens: {seen}, "
            f"allowed is {allowed:g}",
            kind="logprob_mismatch",
            hint="the update did not reach the sampler, or the two compute differently: report it, with the "
            "model's name",
        )


def check_finite(norm: float, *, tokens: int, rollouts: int) -> None:
    """Raise if the gradient is not finite."""
    if not math.isfinite(norm):
        raise UpdateRejected(
            f"the gradient is not finite (norm {norm}) over {tokens} tokens of {rollouts} rollouts",
            kind="gradient_not_finite",
            hint="lower the learning rate, check the rewards for extreme values, or train in float32",
        )


def check_gradient(steps: int, *, rows: int, with_advantage: float, clipped: float) -> None:
    """Raise if no optimizer step of the update found a gradient, although groups carried a signal.

    One step may find none: its rollouts may be as good as the mean, or earlier steps went as far as the clip range lets
    them.
    """
    if steps == 0:
        raise UpdateRejected(
            f"the gradient is exactly zero over {rows} rows of groups whose rewards do differ: {with_advantage:.0%} of "
            f"the tokens have an advantage, and {clipped:.0%} are outside of the clip range",
            kind="gradient_zero",
            hint="check that something is trainable and that sampled tokens had an alternative (a grammar or top_k "
            "of 1 leaves nothing to learn); if the tokens with an advantage are clipped, raise epsilon",
        )


def check_weights_moved(change: float, *, moved: bool, learning_rate: float, grad_norm: float) -> None:
    """Raise if a step, or all steps of an update, changed no weight, or made one not finite."""
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
