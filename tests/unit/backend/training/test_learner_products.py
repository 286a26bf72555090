"""The learner with oneDNN's matrix products."""

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.backend.training import fast_linear
from nat.wire.training import TrainingConfig

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.mark.parametrize("faster", [True, False])
def test_an_update_gives_the_same_weights(faster, make_learner, checkpoint, monkeypatch):
    """A whole update with oneDNN's products ends where one with torch's own does."""
    monkeypatch.setattr(fast_linear, "SMALLEST_PACKED", 1)
    monkeypatch.setattr(fast_linear, "onednn_is_faster", lambda: faster)
    fast = load_model(checkpoint, device="cpu")
    learner = make_learner(fast)
    monkeypatch.setattr(fast_linear, "onednn_is_faster", lambda: False)
    plain = load_model(checkpoint, device="cpu")
    config = resolve(TrainingConfig(learning_rate=1e-3, adam_epsilon=1e-4, warmup_steps=0))
    updated = [made.update(random_groups(plain), config) for made in (learner, make_learner(plain))]
    assert updated[0]["loss"] == pytest.approx(updated[1]["loss"], abs=1e-6)
    assert any("forward" in vars(module) for module in fast.model.modules()) == faster
    for one, other in zip(fast.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
