"""An update at the bounds of its settings trains, or says why it does not."""

from collections.abc import Iterator

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.errors import UpdateRejected
from nat.registry.description import type_text
from nat.wire.rewards import LARGEST
from nat.wire.training import TrainingConfig

SMALLEST = 5e-324
"""The smallest float above zero."""
SETTINGS = sorted(name for name, field in TrainingConfig.model_fields.items() if "float" in type_text(field.annotation))


def extremes() -> Iterator[tuple[str, float]]:
    for name in SETTINGS:
        yield name, SMALLEST
        yield name, 1 - 1e-9 if name.startswith("adam_beta") else LARGEST


@pytest.mark.parametrize(("name", "value"), list(extremes()))
def test_a_setting_at_its_bound_never_trains_nothing(loaded, make_learner, name, value):
    """No internal error, and no completed update without one that moved the weights."""
    learner, groups = make_learner(loaded), random_groups(loaded)
    before = [weight.clone() for weight in loaded.trainable_parameters().values()]
    config = TrainingConfig(**{"warmup_steps": 0, name: value})
    try:
        metrics = learner.update(groups, resolve(config))
    except UpdateRejected:
        return
    assert metrics["optimizer_steps"] > 0
    after = loaded.trainable_parameters().values()
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(bool(weight.isfinite().all()) for weight in after)


@pytest.mark.parametrize("advantage", [SMALLEST, LARGEST, -LARGEST])
@pytest.mark.parametrize("weight", [SMALLEST, 1.0, LARGEST])
def test_an_extreme_signal_never_trains_nothing(loaded, make_learner, advantage, weight):
    """Advantages and weights at their bounds end with other weights, or with a reason."""
    learner = make_learner(loaded)
    groups = [
        group.model_copy(
            update={
                "rollouts": [
                    rollout.model_copy(update={"advantage": advantage * (-1) ** number, "weight": weight})
                    for number, rollout in enumerate(group.rollouts)
                ]
            }
        )
        for group in random_groups(loaded)
    ]
    try:
        metrics = learner.update(groups, resolve(TrainingConfig(advantage="given", warmup_steps=0)))
    except UpdateRejected:
        return
    assert metrics["optimizer_steps"] > 0
