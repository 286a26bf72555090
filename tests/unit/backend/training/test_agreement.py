"""Rounding is measured and allowed; wrong tokens and weights that did not arrive are found beneath it."""

from contextlib import nullcontext

import pytest
import torch

from fakes.training_batches import random_groups, shifted
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.backend.training.agreement import Agreement, Moved
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import Probe
from nat.errors import UpdateRejected
from nat.wire.training import TrainingConfig


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


def test_wrong_log_probabilities_are_found_beyond_rounding(rounding, make_learner):
    """Tokens of other weights differ by more than rounding."""
    with pytest.raises(UpdateRejected, match="differ from the model's"):
        make_learner(rounding).update(shifted(random_groups(rounding), -4.0), resolve(TrainingConfig()))


def test_weights_that_did_not_arrive_are_found_below_the_limit(make_learner, checkpoint):
    """A sampler that keeps its weights is found, since it is nearer to the old ones."""
    fresh, sampler = load_model(checkpoint, device="cpu"), Stale(noise=1e-3)
    config = resolve(TrainingConfig(learning_rate=3e-5, warmup_steps=0, max_kl=None))
    with pytest.raises(UpdateRejected, match="computes with earlier weights") as caught:
        make_learner(fresh, sampler).update(random_groups(fresh), config)
    assert caught.value.kind == "logprob_mismatch"


@pytest.mark.parametrize(("moved", "told"), [(5e-4, False), (5e-3, True)])
def test_old_weights_are_told_from_new_ones_only_beyond_rounding(loaded, moved, told):
    """A sampler that repeats the old log probabilities is stale if the update moved them further than rounding does."""
    row = Row(0, 0, 0, [1] * 5, [0, 1, 2, 3, 4], [1] * 5, [-1.0] * 5, [1.0] * 5)
    start, after = {0: torch.full((5,), -1.0)}, {0: torch.full((5,), -1.0 + moved)}
    agreement = Agreement(loaded, Probe(lambda *_: [start], list), lambda *_: after)
    with pytest.raises(UpdateRejected, match="computes with earlier weights") if told else nullcontext():
        agreement.served([row], Moved({}, rows=[row], logprobs=after), start, TrainingConfig())


def seeded(number):
    return torch.Generator().manual_seed(number)
