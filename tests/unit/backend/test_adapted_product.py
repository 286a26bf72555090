"""Layers with adapters give together what peft computes for each, in few calls."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from nat.backend.adapted_product import AdaptedProduct, is_adapted

NAMES = ["q", "k", "v"]
SIZES = [12, 4, 4]
ROWS = {torch.float32: 1e-6, torch.bfloat16: 0.0}
"""In bfloat16 both are rounded once, after a sum in float32."""


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def adapted(dtype=torch.float32, **settings):
    """Three layers with two adapters of different ranks, the first active, and what applies to both."""
    biased = NAMES if settings.get("lora_bias") else "v"
    sizes = zip(NAMES, SIZES, strict=True)
    layers = nn.ModuleDict({name: nn.Linear(8, size, bias=name in biased) for name, size in sizes})
    config = LoraConfig(r=2, lora_alpha=6, target_modules=NAMES, **settings)
    model = get_peft_model(layers.to(dtype), config, adapter_name="one")
    model.add_adapter("two", LoraConfig(r=3, lora_alpha=5, target_modules=NAMES))
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = random(*weight.shape).to(weight.dtype)
    return model, tuple(model.base_model.model[name] for name in NAMES)


def product_of(layers):
    return AdaptedProduct(layers, lambda x: torch.cat([layer.base_layer(x) for layer in layers], -1))


def assert_as_peft(product, layers, tolerance=1e-6):
    x = random(5, 8).to(layers[0].base_layer.weight.dtype)
    usual = torch.cat([layer(x) for layer in layers], -1)
    torch.testing.assert_close(product(x), usual, atol=tolerance, rtol=tolerance)


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), ROWS.items())
def test_an_adapter_that_is_switched_disabled_or_changed_is_used(dtype, tolerance):
    """A change in place is seen by an object that is made after it."""
    model, layers = adapted(dtype)
    product = product_of(layers)
    assert is_adapted(layers)
    assert not is_adapted((layers[0], layers[1].base_layer))
    assert_as_peft(product, layers, tolerance)
    model.set_adapter("two")
    assert_as_peft(product, layers, tolerance)
    model.base_model.disable_adapter_layers()
    assert_as_peft(product, layers, tolerance)
    model.base_model.enable_adapter_layers()
    for layer in layers:
        layer.lora_A["two"].weight.mul_(2)
    assert_as_peft(product_of(layers), layers, tolerance)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{"use_dora": True}, {"lora_bias": True}, {"use_rslora": True}])
def test_other_kinds_of_adapters_are_computed_by_peft(settings):
    """Whatever they add; only the scale of one of them is another."""
    _, layers = adapted(**settings)
    assert_as_peft(product_of(layers), layers)


@torch.no_grad()
def test_several_active_adapters_and_layers_without_one_are_computed_by_peft():
    """A stranger's code may have put them there."""
    model, layers = adapted()
    model.base_model.set_adapter(["one", "two"])
    assert_as_peft(product_of(layers), layers)
    model.set_adapter("one")
    del layers[1].lora_A["one"]
    assert_as_peft(product_of(layers), layers)


class Calls(TorchDispatchMode):
    """Counts operators, each of which is a kernel or a view."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not str(func).startswith(("aten.t.", "aten.slice.", "aten.detach"))
        return func(*args, **kwargs or {})


@torch.no_grad()
def test_the_layers_take_few_operators():
    """One product for all low ranks, and one for each layer, which adds to the result."""
    _, layers = adapted()
    product, x = product_of(layers), random(5, 8)
    product(x)
    with Calls() as fast:
        product(x)
    with Calls() as usual:
        torch.cat([layer(x) for layer in layers], -1)
    assert (fast.count, usual.count) == (8, 16)
