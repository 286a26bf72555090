"""On-policy distillation: on the student's own rollouts, make each token as likely as a teacher finds it.

The gradient is that of the reverse KL divergence KL(student ‖ teacher) at each token's context, estimated on the token
that was sampled; what a token does to later tokens is left out (a discount of 0).

Shapes: as in algorithm.py.
"""

from dataclasses import replace

from torch import Tensor

from nat.backend.algorithms.advantages import Advantage
from nat.backend.algorithms.algorithm import AlgorithmOptions
from nat.backend.algorithms.grpo import CISPO, centred
from nat.wire.numbers import Amount, PositiveAmount


class DistillOptions(AlgorithmOptions):
    """Options of `distill`."""

    max_log_ratio: PositiveAmount = 5.0
    """Bound of log(teacher / student) of a token, so that a few tokens which the teacher would never write do not
    decide an update."""
    reward_weight: Amount = 0.0
    """Weight of the reward's advantage, which is added to the teacher's; it compares the rollouts of an example, so it
    needs several."""


def towards_teacher(log_ratio_K: Tensor, advantages_K: Tensor, options: DistillOptions) -> Tensor:
    """Give log(teacher / student), bounded, plus the weighted advantage of the reward."""
    most = options.max_log_ratio
    return log_ratio_K.clamp(-most, most) + options.reward_weight * advantages_K


DISTILL = replace(
    CISPO,
    name="distill",
    summary="Imitates a teacher on the student's own rollouts: reverse KL divergence per token, whatever the rewards.",
    paper="arXiv 2306.13649",
    advantage=Advantage(centred, among="nothing"),
    defaults={"normalize_advantages": True, "epsilon_high": 4.0, "num_iterations": 8, "max_kl": 0.3},
    usual_rate=1 / 3,
    options=DistillOptions,
    unused=frozenset({"advantage"}),
    teacher_advantage=towards_teacher,
)
