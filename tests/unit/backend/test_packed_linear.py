"""The products of sampler and learner are torch's own, whichever library computes them on this processor."""

import pytest
import torch
from torch import nn

from nat.backend import packed_linear, products
from nat.backend.packed_linear import PackedLinears
from nat.backend.products import use_fastest_products, with_mkl, with_onednn

WIDTH, OUT = 256, 192
pytestmark = pytest.mark.skipif(
    not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()),
    reason="this torch lacks a library",
)


@pytest.fixture(params=[(with_mkl, False), (with_onednn, True), (with_onednn, False)], ids=["Intel", "AVX", "other"])
def processor(request, monkeypatch):
    """What the rule says on other processors than this one."""
    packer, onednn_for_many = request.param
    monkeypatch.setattr(packed_linear, "packer_of_float32", lambda: packer)
    for module in (packed_linear, products):
        monkeypatch.setattr(module, "onednn_for_many", lambda: onednn_for_many)


def layer(dtype=torch.float32, *, bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, OUT, bias=bias, dtype=dtype))


def computed(linears, model, x):
    with torch.no_grad(), linears.in_use():
        return model(x)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float64, 0)])
def test_any_number_of_tokens_gives_the_sampler_the_product(dtype, tolerance, bias):
    """One token, a few, and more than the layout was chosen for; float64 is left alone."""
    model = layer(dtype, bias=bias)
    linears = PackedLinears(model)
    for tokens in (1, 3, 255, 256, 700):
        x = torch.randn(1, tokens, WIDTH, dtype=dtype)
        torch.testing.assert_close(computed(linears, model, x), model(x).detach(), atol=tolerance, rtol=tolerance)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("shape", [(1,), (1, 37), (2, 3, 50)])
def test_values_and_gradients_of_the_learner_are_torchs(bias, frozen, shape):
    """For any number of tokens, with and without a bias, and where the weights are frozen, as under LoRA."""
    found = []
    for use in (lambda _: None, use_fastest_products):
        model = layer(bias=bias)
        model[0].weight.requires_grad_(not frozen)
        use(model)
        x = torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = model(x)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        found.append([y.detach(), x.grad, *(weight.grad for weight in model.parameters() if weight.requires_grad)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_weights_that_changed_in_place_are_used_after_forget():
    """The copy is made once; `forget` drops it, and weights in another place are noticed without it."""
    model, x = layer(), torch.randn(2, WIDTH)
    linears = PackedLinears(model)
    before = computed(linears, model, x)
    with torch.no_grad():
        model[0].weight.mul_(2.0)
    torch.testing.assert_close(computed(linears, model, x), before)
    linears.forget()
    torch.testing.assert_close(computed(linears, model, x), model(x).detach())
    model[0].weight.data = model[0].weight.data * 3.0
    torch.testing.assert_close(computed(linears, model, x), model(x).detach())
