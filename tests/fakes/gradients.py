"""The gradient of an optimizer step, before it is clipped."""

from typing import Any

from torch import Tensor

from nat.backend.algorithms.registry import resolve
from nat.backend.training.learner import Learner
from nat.wire.training import TrainingConfig, TrainingGroup


def trained(learner: Learner, groups: list[TrainingGroup], **config: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The gradient and the metrics of an update that hardly moves the weights."""
    caught = {}
    clip = learner.optimizer.clip

    def catch(max_norm):
        caught.update({name: p.grad.clone() for name, p in learner._policy.trainable_parameters().items()})
        return clip(max_norm)

    learner.optimizer.clip = catch
    given = {"learning_rate": 1e-7, "warmup_steps": 0, "steps_per_batch": 1, "max_kl": None, **config}
    metrics = learner.update(groups, resolve(TrainingConfig(**given)))
    return caught, metrics
