"""Linear layers on the CPU with weights that are reordered once, instead of in every matrix product.

A matrix product reorders its weights for the processor's vector units. With a few tokens, as in decoding, that takes
as long as the product itself, so the sampler uses reordered copies. The learner changes the weights, so it uses the
weights themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

import torch
from torch import Tensor, nn

from nat.backend.lean_layers import LeanLayer, Siblings
from nat.backend.memory import return_free_pages, return_pages_if_short
from nat.backend.products import (
    Packer,
    Product,
    has_onednn,
    is_plain_linear,
    onednn_for_many,
    onednn_has_bfloat16,
    packer_of_float32,
    with_mkl,
    with_onednn,
)
from nat.sizing.rules import SMALLEST_PACKED

_MANY = 256
"""Tokens from which on the layout for a few is not taken."""


class PackedLinears:
    """The reordered weights of a model's linear layers; made when first used, and to be dropped after an update.

    Weights that change in place are not noticed: call `forget`. Those that are exchanged as a whole are.
    """

    def __init__(self, model: nn.Module, wide: nn.Module | None = None, lean: Sequence[LeanLayer] = ()) -> None:
        """Does nothing on other devices than a CPU, and for other precisions than float32 and bfloat16.

        The layer `wide` computes in float32, whatever its weights are in. While the weights are in use, each `lean`
        layer computes in place of its own, and its siblings are one product.
        """
        self.state = object()
        """Another one after copies were dropped: what was recorded reads memory that is free."""
        self._lean = lean
        self._merged: dict[Siblings, Product] = {}
        for layer in lean:
            layer.merged = self._merged
        groups = [
            siblings for layer in lean for siblings in layer.siblings if len(siblings) > 1 and _can_merge(siblings)
        ]
        inside = {module for group in groups for module in group}
        groups += [(module,) for module in model.modules() if is_plain_linear(module) and module not in inside]
        self._weights = [
            _Weights(group, packer)
            for group in groups
            if sum(module.weight.numel() for module in group) >= SMALLEST_PACKED
            and (packer := _packer(group[0].weight, wide=group[0] is wide))
        ]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute without gradients from the reordered weights inside the block.

        MKL asks for 9 MB more than it writes for each layer. In fresh pages these cost nothing; in pages that an update
        has used and freed they would take several times the memory of the weights.
        """
        stale = [weights for weights in self._weights if weights.stale]
        if any(weights.packer is with_mkl for weights in stale):
            return_free_pages()
        elif stale:
            return_pages_if_short()
        for weights in stale:
            self._merged[weights.modules] = weights.pack()
        alone = [(modules[0], product) for modules, product in self._merged.items() if len(modules) == 1]
        with exchanged([*alone, *((layer.layer, layer.forward) for layer in self._lean)]):
            yield

    def forget(self) -> None:
        """Drop the copies of weights that training changes; the next use makes them again."""
        self.state = object()
        for weights in self._weights:
            if any(module.weight.requires_grad for module in weights.modules):
                weights.sources = []
                self._merged.pop(weights.modules, None)
        for layer in self._lean:
            layer.forget()


class _Weights:
    """The weights of linear layers that take the same input, reordered as one."""

    def __init__(self, modules: tuple[nn.Linear, ...], packer: Packer) -> None:
        self.modules = modules
        self.packer = packer
        self._by_tokens = packer is with_onednn and modules[0].weight.dtype == torch.float32
        self.sources: list[int] = []
        """Addresses of the weights that were reordered; training may put others in their place."""

    @property
    def stale(self) -> bool:
        """Whether the weights have to be reordered before the next use."""
        return self.sources != self._addresses()

    def pack(self) -> Product:
        """Reorder the weights; gives the product of all layers."""
        pairs = [(each.weight.detach(), None if each.bias is None else each.bias.detach()) for each in self.modules]
        weights, biases = [weight for weight, _ in pairs], [bias for _, bias in pairs if bias is not None]
        one = len(pairs) == 1
        product = self.packer(weights[0] if one else torch.cat(weights), torch.cat(biases) if biases else None)
        if self._by_tokens and not onednn_for_many():
            product = _by_tokens(product, pairs)
        self.sources = self._addresses()
        return product

    def _addresses(self) -> list[int]:
        return [module.weight.data_ptr() for module in self.modules]


def _by_tokens(few: Product, pairs: Sequence[tuple[Tensor, Tensor | None]]) -> Product:
    """The product that is faster for a few tokens, and torch's own with the weights themselves for many.

    Several results are written side by side at once: to join them would take half of the products' time again.
    """
    most = _MANY * pairs[0][0].shape[1]
    outputs = sum(len(weight) for weight, _ in pairs)

    def product(x: Tensor) -> Tensor:
        if x.numel() < most:
            return few(x)
        out, x_TK = x.new_empty(*x.shape[:-1], outputs), x.flatten(0, -2)
        parts = torch.split(out.view(-1, outputs), [len(weight) for weight, _ in pairs], -1)
        for (weight, bias), part in zip(pairs, parts, strict=True):
            if bias is None:
                torch.mm(x_TK, weight.T, out=part)
            else:
                torch.addmm(bias, x_TK, weight.T, out=part)
        return out

    return product


@contextmanager
def exchanged(forwards: Sequence[tuple[nn.Module, Callable[..., Tensor]]]) -> Iterator[None]:
    """Let modules compute something else inside the block, also if the learner has put something in place before."""
    usual = [vars(module).get("forward") for module, _ in forwards]
    for module, forward in forwards:
        vars(module)["forward"] = forward  # ten times as fast as setattr, which looks for parameters
    try:
        yield
    finally:
        for (module, _), before in zip(forwards, usual, strict=True):
            if before is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = before


def _can_merge(siblings: Siblings) -> TypeGuard[tuple[nn.Linear, ...]]:
    plain = [each for each in siblings if type(each) is nn.Linear]
    kinds = {(each.weight.dtype, each.weight.requires_grad, each.bias is None) for each in plain}
    return len(plain) == len(siblings) and len(kinds) == 1


def _packer(weight: Tensor, *, wide: bool) -> Packer | None:
    if weight.device.type != "cpu" or weight.dtype not in {torch.float32, torch.bfloat16}:
        return None
    if weight.dtype == torch.float32:
        return packer_of_float32()
    if wide:
        return _with_onednn_in_float32 if has_onednn() else None
    return with_onednn if onednn_has_bfloat16() else None


def _with_onednn_in_float32(weight: Tensor, bias: Tensor | None) -> Product:
    product = with_onednn(weight.float(), None if bias is None else bias.float())
    return lambda x: product(x.float())
