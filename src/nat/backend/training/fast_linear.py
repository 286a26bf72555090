"""Linear layers of the learner, on a CPU, with the products that products.py names for this processor.

The learner's weights change with each step, so nothing is reordered in advance; the operator of torch has no gradient.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nat.backend.packed_linear import is_plain_linear
from nat.backend.products import onednn_for_many, onednn_product
from nat.sizing.rules import SMALLEST_PACKED


def use_fastest_products(model: nn.Module) -> None:
    """Have the linear layers of a model compute with oneDNN, if that is the rule for this processor."""
    layers = [
        module
        for module in model.modules()
        if is_plain_linear(module)
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.float32
        and module.weight.numel() >= SMALLEST_PACKED
    ]
    if layers and onednn_for_many():
        for layer in layers:
            vars(layer)["forward"] = partial(_forward, layer)


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    result: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]  # torch has no type for it
    return result


class _Linear(torch.autograd.Function):
    """x [..., K] and a weight [N, K] to [..., N]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        return (
            onednn_product(gradient, weight.t()) if of_x else None,
            onednn_product(flat.t(), x.flatten(0, -2).t()) if of_weight else None,
            flat.sum(0) if of_bias else None,
        )
