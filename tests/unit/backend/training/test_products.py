"""OneDNN's products give the values and gradients of torch's own."""

import pytest
import torch
from torch import nn

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.backend.packed_linear import PackedLinears
from nat.backend.training import products
from nat.backend.training.products import use_fastest_products
from nat.sizing.rules import SMALLEST_PACKED
from nat.wire.training import TrainingConfig

WIDTH, OUT = 192, 256
pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(params=[True, False])
def faster(request, monkeypatch):
    """Whether oneDNN counts as the faster one on this machine."""
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: request.param)
    return request.param


def layer(bias, *, frozen=False):
    torch.manual_seed(0)
    made = nn.Linear(WIDTH, OUT, bias=bias)
    made.weight.requires_grad_(not frozen)
    return made


def computed(made, x):
    x = x.clone().requires_grad_()
    made.zero_grad()
    y = made(x)
    (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    return [y.detach(), x.grad, *(None if p.grad is None else p.grad.clone() for p in made.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 37), (2, 3, 50)])
def test_values_and_gradients_are_torchs(faster, bias, frozen, shape):
    """For any number of tokens, with and without a bias, and where the weights are frozen, as under LoRA."""
    assert WIDTH * OUT >= SMALLEST_PACKED
    x = torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(1))
    plain, fast = layer(bias, frozen=frozen), layer(bias, frozen=frozen)
    use_fastest_products(fast)
    assert ("forward" in vars(fast)) == faster
    for one, other in zip(computed(plain, x), computed(fast, x), strict=True):
        if one is None:
            assert other is None
        else:
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_the_sampler_puts_them_back(faster):
    """Reordered weights are used inside their block alone."""
    made = layer(bias=True)
    use_fastest_products(made)
    before, linears = vars(made).get("forward"), PackedLinears(made)
    with torch.no_grad(), linears.in_use():
        assert vars(made)["forward"] is not before
    assert vars(made).get("forward") is before


def test_an_update_gives_the_same_weights(faster, make_learner, checkpoint, monkeypatch):
    """A whole update with oneDNN's products ends where one with torch's own does."""
    monkeypatch.setattr(products, "SMALLEST_PACKED", 1)
    fast = load_model(checkpoint, device="cpu")
    learner = make_learner(fast)
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: False)
    plain = load_model(checkpoint, device="cpu")
    config = resolve(TrainingConfig(learning_rate=1e-3, adam_epsilon=1e-4, warmup_steps=0))
    updated = [made.update(random_groups(plain), config) for made in (learner, make_learner(plain))]
    assert updated[0]["loss"] == pytest.approx(updated[1]["loss"], abs=1e-6)
    assert any("forward" in vars(module) for module in fast.model.modules()) == faster
    for one, other in zip(fast.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
