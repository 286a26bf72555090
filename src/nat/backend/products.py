"""Matrix products of linear layers on the CPU, and which library computes them: one rule for each kind of processor.

With a few tokens, as in decoding, reading the weights takes most of the time, so the sampler reorders them once for the
processor's vector units. With many tokens, as in prompts and in the learner, a product reorders them in passing.

| float32 on          | a few tokens      | many tokens | because                                             |
|---------------------|-------------------|-------------|-----------------------------------------------------|
| Intel's processors  | MKL, reordered    | MKL         | MKL has kernels for each of them                    |
| others with AVX-512 | oneDNN, reordered | oneDNN      | MKL has none there that use AVX-512                 |
| others              | oneDNN, reordered | torch's own | few took half of MKL's time, many 13 % more (Zen 3) |

bfloat16 is `auto` with AMX, which multiplies it several times as fast as float32, and with AVX512-BF16 of others than
Intel: an AMD EPYC (Zen 4) sampled 1.3 to 1.6 times as fast and trained 1.4 times, a processor of Intel without AMX
took longer. `python -m bench sampler` and `learner_real` check the rule. The operators of torch for reordered weights
have no public names.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nat.sizing.rules import SMALLEST_PACKED

_TOKENS = 512
"""Number of tokens that the layout is chosen for; a product with fewer or more is as exact and nearly as fast."""
_CPUINFO = Path("/proc/cpuinfo")

Product = Callable[[Tensor], Tensor]
Packer = Callable[[Tensor, Tensor | None], Product]
"""Reorders a weight [N, K] and keeps a bias [N]; the result maps […, K] to […, N]."""


def onednn_has_bfloat16() -> bool:
    """Whether oneDNN computes in bfloat16 here; it does not without AVX-512 or AVX-NE-CONVERT."""
    return has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 - no public name


def has_onednn() -> bool:
    """Whether this torch was built with oneDNN."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch has no type for it
    return available


@cache
def packer_of_float32() -> Packer | None:
    """How the sampler reorders weights in float32, for a few tokens."""
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # as oneDNN's
    if has_mkl and (_is_intel() or not has_onednn()):
        return with_mkl
    return with_onednn if has_onednn() else None


@cache
def onednn_for_many() -> bool:
    """Whether oneDNN computes products of many tokens in float32; else torch's own operator does."""
    return has_onednn() and not _is_intel() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 much faster than float32."""
    amx: bool = torch.cpu._is_amx_tile_supported()  # noqa: SLF001 - no public name
    vectors: bool = torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001 - the same
    return amx or (vectors and not _is_intel())


def _is_intel() -> bool:
    return _CPUINFO.is_file() and "GenuineIntel" in _CPUINFO.read_text()


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply x [..., K] by a weight [N, K], plain or reordered; this operator of torch has no gradient."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")  # noqa: SLF001 - no public name
    return result


def with_mkl(weight: Tensor, bias: Tensor | None) -> Product:
    """Reorder a weight of float32 for MKL."""
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, _TOKENS)  # noqa: SLF001 - no public name
    product, width = torch.ops.mkl._mkl_linear.default, weight.shape[1]  # noqa: SLF001 - no public name
    shape = weight.new_zeros(1).expand_as(weight)  # of the weights themselves it reads no more than that

    def forward(x: Tensor) -> Tensor:
        result: Tensor = product(x, packed, shape, bias, x.numel() // width)
        return result

    return forward


def with_onednn(weight: Tensor, bias: Tensor | None) -> Product:
    """Reorder a weight of float32 or bfloat16 for oneDNN."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS)  # noqa: SLF001 - the same
    return partial(onednn_product, weight=packed, bias=bias)


def is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether the module computes a linear layer and no more, as a router that inherits from one does."""
    return type(module).forward is nn.Linear.forward


def use_fastest_products(model: nn.Module) -> None:
    """Have the learner's layers compute with oneDNN, if that is the rule for this processor.

    Its weights change with each step, so nothing is reordered in advance.
    """
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
