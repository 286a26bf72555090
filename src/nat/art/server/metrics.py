"""The metrics of a gradient step under the names that ART's clients of all versions know."""

import math
from collections.abc import Mapping

_OLD_NAMES = {
    "loss": "loss",
    "policy_loss": "policy_loss",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "reference_kl": "kl_div",
}
"""Our name → what servers up to 0.5.16 called it."""
_NEW_NAMES = {
    "loss": "loss/train",
    "entropy": "loss/entropy",
    "grad_norm": "loss/grad_norm",
    "learning_rate": "loss/learning_rate",
    "reference_kl": "loss/kl_policy_ref",
    "logprob_diff_mean": "loss/sampler_logprob_difference",
}
"""Our name → what servers from 0.5.17 on call it; the last one is ours: mean |Δ log p| of learner and sampler."""


def stream_metrics(
    step_metrics: Mapping[str, float], facts: Mapping[str, float], num_gradient_steps: int, learning_rate: float
) -> dict[str, float]:
    """Give one line of the stream: both families of names, and the facts of the batch, as finite numbers.

    `learning_rate` is told where the step does not tell its own. A call that trained nothing has neither steps nor
    tokens, and no loss.
    """
    line = {**facts, "num_gradient_steps": num_gradient_steps, "data/step_num_gradient_steps": num_gradient_steps}
    if num_gradient_steps:
        step = {"learning_rate": learning_rate, **step_metrics}
        line |= {name: step[ours] for names in (_OLD_NAMES, _NEW_NAMES) for ours, name in names.items() if ours in step}
    return {name: float(value) for name, value in line.items() if math.isfinite(value)}
