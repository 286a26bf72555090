"""Rounding is measured and allowed; wrong tokens and weights that did not arrive are found beneath it."""

from dataclasses import replace

import pytest
import torch

from fakes.training_batches import random_groups, shifted
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.backend.training.batch import Row
from nat.backend.training.checks import Way, check_weights_arrived
from nat.backend.training.mismatch import way_of
from nat.errors import UpdateRejected
from nat.wire.training import TrainingConfig

LIMIT = TrainingConfig().max_logprob_difference


@pytest.fixture
def rounding(tiny_dir):
    """A model in bfloat16 whose logits are so large that rounding alone exceeds the usual limit, as in real models."""
    loaded = load_model(tiny_dir("llama"), device="cpu", dtype="bfloat16")
    with torch.no_grad():
        loaded.model.get_output_embeddings().weight.mul_(60)
    return loaded


class Stale:
    """A sampler that keeps the weights that it had; each token has noise."""

    def __init__(self, noise):
        self._noise = noise

    def __call__(self, _, rows):
        random = seeded(1)
        return {
            row.index: torch.tensor(row.sampler_logprobs)
            + self._noise * torch.randn(len(row.targets), generator=random)
            for row in rows
        }


def test_rounding_beyond_the_limit_ends_no_healthy_run(rounding, make_learner, caplog):
    """What rounding makes of these weights is measured before the first update, and three times as much is allowed."""
    caplog.set_level("INFO")
    learner = make_learner(rounding)
    config = resolve(TrainingConfig(learning_rate=1e-5, warmup_steps=0))
    metrics = [learner.update(random_groups(rounding, seed=seed), config) for seed in range(3)]
    assert max(own["served_diff_mean"] for own in metrics) > LIMIT
    assert sum("rounding to bfloat16 alone makes" in line for line in caplog.messages) == 1


def test_wrong_log_probabilities_are_found_beyond_rounding(rounding, make_learner):
    """Tokens of other weights differ by more than rounding."""
    with pytest.raises(UpdateRejected, match="differ from the model's"):
        make_learner(rounding).update(shifted(random_groups(rounding), -4.0), resolve(TrainingConfig()))


def test_weights_that_did_not_arrive_are_found_below_the_limit(make_learner, checkpoint):
    """A sampler that keeps its weights is found by the way that its log probabilities have not gone."""
    fresh, sampler = load_model(checkpoint, device="cpu"), Stale(noise=1e-3)
    config = resolve(TrainingConfig(learning_rate=3e-5, warmup_steps=0, max_kl=None))
    with pytest.raises(UpdateRejected, match="computes with earlier weights") as caught:
        make_learner(fresh, sampler).update(random_groups(fresh), config)
    assert caught.value.kind == "logprob_mismatch"


def test_the_way_is_measured_beneath_noise():
    """The share of the way is a projection, with an error that follows from the noise of each token."""
    tokens = 200
    way, noise = torch.randn(tokens, generator=seeded(0)), 0.3 * torch.randn(tokens, generator=seeded(1))
    row = Row(0, 0, 0, [1] * tokens, list(range(tokens)), [1] * tokens, [0.0] * tokens, [1.0] * tokens)
    before, after = {0: torch.zeros(tokens)}, {0: way}
    for share in (0.0, 1.0):
        found = way_of([row], before, after, {0: share * way + noise})
        assert found.share == pytest.approx(share, abs=3 * found.error)
        assert found.error == pytest.approx(0.3 / tokens**0.5, rel=0.2)
    assert way_of([row], before, before, after) == Way(1.0, float("inf"))
    assert way_of([replace(row, targets=row.targets)], before, after, after).error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("way", "arrived"), [(Way(0.9, 0.05), True), (Way(0.1, 0.2), True), (Way(0.1, 0.1), False)])
def test_only_a_certain_shortfall_fails(way, arrived):
    """Weights count as missing if the share is below a half by three standard errors."""
    if arrived:
        check_weights_arrived(way)
    else:
        with pytest.raises(UpdateRejected, match="gone 10% of the way"):
            check_weights_arrived(way)


def seeded(number):
    return torch.Generator().manual_seed(number)
