"""Which matrix products are fastest on this CPU: in bfloat16 or float32, the learner's of oneDNN or MKL.

On AMD's processors MKL computes with generic kernels. The learner's weights change with each step, so nothing is
reordered in advance; this operator of torch takes plain weights as well. It has no public name and no gradient.
"""

import logging
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nat.backend.packed_linear import (
    Packer,
    Product,
    fastest,
    fastest_packer,
    onednn_has_bfloat16,
    product_times,
    with_onednn,
)
from nat.sizing.rules import SMALLEST_PACKED

logger = logging.getLogger(__name__)

_TRIAL = 512, 768, 768
"""Tokens, and size of the weights, of the products that are timed."""
_SAMPLED = 16, 768, 768
"""The same for a decoding step."""
_MUCH_FASTER = 0.7
"""Share of float32's time below which bfloat16 is worth its rounding."""


def use_fastest_products(model: nn.Module) -> None:
    """Have the linear layers of a model compute with the products that are faster on this machine."""
    layers = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear)
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.float32
        and module.weight.numel() >= SMALLEST_PACKED
    ]
    if layers and _onednn_is_faster():
        for layer in layers:
            vars(layer)["forward"] = partial(_forward, layer)


@cache
def bfloat16_is_faster() -> bool:
    """Whether this CPU computes the products of sampler and learner much faster in bfloat16 than in float32."""
    sampler = fastest_packer()
    if sampler is None or not onednn_has_bfloat16():
        return False
    learner = _with_onednn if _onednn_is_faster() else _with_mkl
    found = {
        "sampler": product_times({"float32": sampler, "bfloat16": _in_bfloat16(with_onednn)}, _SAMPLED),
        "learner": product_times({"float32": learner, "bfloat16": _in_bfloat16(_with_mkl)}, _TRIAL),
    }
    shares = {whose: times["bfloat16"] / times["float32"] for whose, times in found.items()}
    logger.info("a product in bfloat16 takes this share of its time in float32: %s", shares)
    return max(shares.values()) < _MUCH_FASTER


def _in_bfloat16(packer: Packer) -> Packer:
    def pack(weight: Tensor, bias: Tensor | None) -> Product:
        product = packer(weight.bfloat16(), bias)
        return lambda x: product(x.bfloat16())

    return pack


@cache
def _onednn_is_faster() -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch has no type for it
        return False
    packers: dict[str, Packer] = {"MKL": _with_mkl, "oneDNN": _with_onednn}
    return fastest("the learner's", packers, _TRIAL) is _with_onednn


def _with_mkl(weight: Tensor, bias: Tensor | None) -> Product:
    return partial(F.linear, weight=weight, bias=bias)


def _with_onednn(weight: Tensor, bias: Tensor | None) -> Product:
    return partial(_product, weight=weight, bias=bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")  # noqa: SLF001 - no public name
    return result


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    result: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]  # torch has no type for it
    return result


class _Linear(torch.autograd.Function):
    """x [..., K] and a weight [N, K] to [..., N]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        return (
            _product(gradient, weight.t()) if of_x else None,
            _product(flat.t(), x.flatten(0, -2).t()) if of_weight else None,
            flat.sum(0) if of_bias else None,
        )
