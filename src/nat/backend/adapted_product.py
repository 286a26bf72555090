"""Linear layers with LoRA that take the same input, as the sampler computes them: few calls for all of them.

peft calls some seven operators for each layer; with a few tokens these take as long as the layers' own products. Here
the first products of all low ranks are one, and each second one adds to the result. Numbers are rounded where peft
rounds them.

Shapes: T tokens, N width, R the sum of the ranks, M the sum of the outputs.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from peft.tuners.lora import Linear
from torch import Tensor, nn


class _LowRank(NamedTuple):
    """What the active adapter adds to the layers."""

    down_RN: Tensor
    ups: Sequence[tuple[slice, slice, Tensor, float]]
    """For each layer its outputs, its ranks, the transposed second matrix and the scale."""


class AdaptedProduct:
    """Computes [T, M], the outputs of the layers side by side, without gradients.

    It keeps copies of the first matrices of the adapters that it has computed, where they are, since CUDA graphs may
    read them: drop the object when these have changed.
    """

    def __init__(self, layers: Sequence[Linear], base: Callable[[Tensor], Tensor]) -> None:
        """`base` gives the outputs of the layers without their adapters, in memory of its own."""
        self._layers = layers
        self._base = base
        self._low_ranks: dict[str, _LowRank | None] = {}

    def __call__(self, x_TN: Tensor) -> Tensor:
        first = self._layers[0]
        if first.disable_adapters:
            return self._base(x_TN)
        if (name := str(first.active_adapter)) not in self._low_ranks:
            self._low_ranks[name] = _low_rank(self._layers)
        if (low_rank := self._low_ranks[name]) is None:
            return torch.cat([layer(x_TN) for layer in self._layers], -1)
        down_RN, ups = low_rank
        out_TM = self._base(x_TN)
        sum_TM, inner_TR = out_TM.to(down_RN.dtype), F.linear(x_TN.to(down_RN.dtype), down_RN)
        for outputs, ranks, up, scale in ups:
            sum_TM[:, outputs].addmm_(inner_TR[:, ranks], up, alpha=scale)
        return sum_TM.to(out_TM.dtype)


def is_adapted(layers: tuple[nn.Module, ...]) -> TypeGuard[tuple[Linear, ...]]:
    """Whether all of them have adapters."""
    return all(type(layer) is Linear for layer in layers)


def _low_rank(layers: Sequence[Linear]) -> _LowRank | None:
    """None if the active adapters are several, lack a layer, or are more than two matrices."""
    [name, *others] = layers[0].active_adapters
    if others or not all(_is_usual(layer, name) for layer in layers):
        return None
    pairs: list[tuple[Any, Any]] = [(layer.lora_A[name], layer.lora_B[name]) for layer in layers]
    ranks, outputs = ([len(each.weight) for each in half] for half in zip(*pairs, strict=True))
    ups = zip(_slices(outputs), _slices(ranks), pairs, layers, strict=True)
    return _LowRank(
        torch.cat([down.weight.detach() for down, _ in pairs]),
        [(at, own, up.weight.detach().T, layer.scaling[name]) for at, own, (_, up), layer in ups],
    )


def _is_usual(layer: Linear, name: str) -> bool:
    return (
        name in layer.lora_A
        and name not in layer.lora_variant
        and not layer.merged
        and getattr(layer.lora_B[name], "bias", None) is None
    )


def _slices(sizes: Sequence[int]) -> list[slice]:
    return [slice(start, end) for start, end in pairwise(accumulate(sizes, initial=0))]
