"""OneDNN's products give the values and gradients of torch's own."""

import pytest
import torch
from torch import nn

from nat.backend import products
from nat.backend.packed_linear import PackedLinears
from nat.backend.training import fast_linear
from nat.backend.training.fast_linear import use_fastest_products
from nat.sizing.rules import SMALLEST_PACKED

WIDTH, OUT = 192, 256
pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(params=[True, False])
def faster(request, monkeypatch):
    """Whether oneDNN counts as the faster one on this machine."""
    monkeypatch.setattr(fast_linear, "onednn_is_faster", lambda: request.param)
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


@pytest.mark.parametrize(
    ("supported", "shares", "faster"),
    [(True, (0.5, 0.5), True), (True, (0.5, 1.7), False), (True, (0.9, 0.5), False), (False, (0.5, 0.5), False)],
)
def test_bfloat16_has_to_be_much_faster_for_sampler_and_learner(monkeypatch, supported, shares, faster):
    """Some CPUs that have instructions for it compute the learner's products slower than in float32."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)
    times = iter([{"float32": 1.0, "bfloat16": share} for share in shares])
    monkeypatch.setattr(products, "product_times", lambda *_: next(times))
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    assert products.bfloat16_is_faster.__wrapped__() is faster


def test_bfloat16_is_timed_as_it_computes(monkeypatch):
    """The trial's products convert float32 to bfloat16 and give what a layer in bfloat16 gives."""
    seen = []

    def times(packers, trial):
        weight, x = torch.linspace(-1, 1, 128 * 64).view(128, 64), torch.linspace(0, 1, 64).expand(3, 64)
        seen.append((packers["bfloat16"](weight, None)(x), x.bfloat16() @ weight.bfloat16().t()))
        return {"float32": 1.0, "bfloat16": 0.5}

    monkeypatch.setattr(products, "product_times", times)
    if not products.bfloat16_is_faster.__wrapped__():
        pytest.skip("this CPU has no products in bfloat16")
    for found, wanted in seen:
        torch.testing.assert_close(found, wanted, atol=0.05, rtol=0.02)
    assert len(seen) == 2
