"""Linear layers on the CPU with weights that are reordered once, instead of in every matrix product.

A matrix product reorders its weights for the processor's vector units. With a few tokens, as in decoding, that takes
as long as the product itself. So the sampler uses reordered copies, in the layout of oneDNN, or for float32 in that of
MKL where it is faster, as on Intel's processors. Both serve any number of tokens. These operators of torch have no
public names. The learner changes the weights, so it uses the weights themselves.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeGuard

import torch
from torch import Tensor, nn

from nat.backend.lean_layers import LeanLayer, Siblings
from nat.heap import return_free_pages
from nat.sizing.rules import SMALLEST_PACKED

logger = logging.getLogger(__name__)

_TOKENS = 512
"""Number of tokens that the layout is chosen for; a product with fewer or more is as exact and nearly as fast."""
_TRIAL = 8, 768, 768
"""Tokens, and size of the weights, of the products that are timed."""
_TOGETHER = 128
"""Tokens times weights of a trial: with few tokens many weights are used in turn, so that they come from memory, as
those of a model do."""
_TRIALS = 10
_FASTER = 0.9
"""Share of MKL's time below which oneDNN is used; near 1 the choice, and with it the rounding, would be chance."""

Product = Callable[[Tensor], Tensor]
Packer = Callable[[Tensor, Tensor | None], Product]
"""Reorders a weight [N, K] and keeps a bias [N]; the result maps […, K] to […, N]."""


class PackedLinears:
    """The reordered weights of a model's linear layers; made when first used, and to be dropped after an update.

    Weights that change in place are not noticed: call `forget`. Those that are exchanged as a whole are.
    """

    def __init__(self, model: nn.Module, wide: nn.Module | None = None, lean: Sequence[LeanLayer] = ()) -> None:
        """Does nothing on other devices than a CPU, and for other precisions than float32 and bfloat16.

        The layer `wide` computes in float32, whatever its weights are in. While the weights are in use, each `lean`
        layer computes in place of its own, and its siblings are one product.
        """
        self._lean = lean
        self._merged: dict[Siblings, Product] = {}
        for layer in lean:
            layer.merged = self._merged
        groups = [siblings for layer in lean for siblings in layer.siblings if _can_merge(siblings)]
        inside = {module for group in groups for module in group}
        groups += [(module,) for module in model.modules() if isinstance(module, nn.Linear) and module not in inside]
        self._weights = [
            _Weights(group, packer)
            for group in groups
            if _size(group) >= SMALLEST_PACKED and (packer := _packer(group[0].weight, wide=group[0] is wide))
        ]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute without gradients from the reordered weights inside the block.

        MKL asks for 9 MB more than it writes for each layer. In fresh pages these cost nothing; in pages that an update
        has used and freed they would take several times the memory of the weights.
        """
        if stale := [weights for weights in self._weights if weights.stale]:
            return_free_pages()
        for weights in stale:
            self._merged[weights.modules] = weights.pack()
        forwards = [pair for weights in self._weights for pair in weights.forwards]
        with exchanged([*forwards, *((layer.layer, layer.forward) for layer in self._lean)]):
            yield

    def forget(self) -> None:
        """Drop the copies of weights that training changes; the next use makes them again."""
        for weights in self._weights:
            if weights.forget():
                self._merged.pop(weights.modules, None)


class _Weights:
    """The weights of linear layers that take the same input, reordered as one."""

    def __init__(self, modules: tuple[nn.Linear, ...], packer: Packer) -> None:
        self.modules = modules
        self._packer = packer
        self.forwards: Sequence[tuple[nn.Module, Product]] = ()
        """What each layer computes while they are in use; empty until they are reordered."""
        self._sources: list[int] = []
        """Addresses of the weights that were reordered; training may put others in their place."""

    @property
    def stale(self) -> bool:
        """Whether the weights have to be reordered before the next use."""
        return not self.forwards or self._sources != self._addresses()

    def pack(self) -> Product:
        """Reorder the weights; gives the product of all layers."""
        weights, biases = [each.weight.detach() for each in self.modules], [each.bias for each in self.modules]
        bias = None if biases[0] is None else torch.cat([each.detach() for each in biases])
        product = self._packer(weights[0] if len(weights) == 1 else torch.cat(weights), bias)
        self._sources = self._addresses()
        self.forwards = [(self.modules[0], product)] if len(weights) == 1 else _parts(self.modules, product)
        return product

    def forget(self) -> bool:
        """Drop the reordered copy, unless the weights are frozen."""
        if any(module.weight.requires_grad for module in self.modules):
            self.forwards = ()
        return not self.forwards

    def _addresses(self) -> list[int]:
        return [module.weight.data_ptr() for module in self.modules]


def _parts(modules: Sequence[nn.Linear], product: Product) -> list[tuple[nn.Module, Product]]:
    """Each layer's part of their product, which is computed once for the same input."""
    sizes = [module.out_features for module in modules]
    known: list[tuple[Tensor, Sequence[Tensor]]] = []

    def part(number: int, x: Tensor) -> Tensor:
        if not known or known[0][0] is not x:
            known[:] = [(x, torch.split(product(x), sizes, -1))]
        found = known[0][1][number]
        if number == len(sizes) - 1:
            known.clear()
        return found

    return [(module, partial(part, number)) for number, module in enumerate(modules)]


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
    """Whether one product can take the place of these layers'."""
    plain = [each for each in siblings if type(each) is nn.Linear]
    kinds = {(each.weight.dtype, each.weight.requires_grad, each.bias is None) for each in plain}
    return len(plain) == len(siblings) and len(kinds) == 1


def _size(modules: Sequence[nn.Linear]) -> int:
    return sum(module.weight.numel() for module in modules)


def _packer(weight: Tensor, *, wide: bool) -> Packer | None:
    if weight.device.type != "cpu" or weight.dtype not in {torch.float32, torch.bfloat16}:
        return None
    if weight.dtype == torch.float32:
        return fastest_packer()
    if wide:
        return _with_onednn_in_float32 if _has_onednn() else None
    return with_onednn if onednn_has_bfloat16() else None


def onednn_has_bfloat16() -> bool:
    """Whether oneDNN computes in bfloat16 here; it does not without AVX-512 or AVX-NE-CONVERT."""
    return _has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 - no public name


def _has_onednn() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch has no type for it
    return available


@cache
def fastest_packer() -> Packer | None:
    """The layout that is faster for float32 on this machine, if there is one."""
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # as oneDNN's
    if has_mkl and _has_onednn():
        return fastest("the sampler's", {"MKL": with_mkl, "oneDNN": with_onednn}, _TRIAL)
    return with_mkl if has_mkl else with_onednn if _has_onednn() else None


def fastest(whose: str, packers: Mapping[str, Packer], trial: tuple[int, int, int]) -> Packer:
    """The second one of two if it is faster for float32 on this machine, else the first."""
    times = product_times(packers, trial)
    first, second = packers
    name = second if times[second] < _FASTER * times[first] else first
    measured = ", ".join(f"{each} {1e6 * seconds:.0f} µs" for each, seconds in times.items())
    logger.info("%s products in float32 use %s (%d x %d x %d: %s)", whose, name, *trial, measured)
    return packers[name]


@torch.inference_mode()
def product_times(packers: Mapping[str, Packer], trial: tuple[int, int, int] = _TRIAL) -> Mapping[str, float]:
    """Seconds of one product by name: the shortest of several, in turn, since other work only adds time.

    One thread computes, because threads that wait for each other measure the other programs of the machine. A `trial`
    is a number of tokens, of inputs and of outputs.
    """
    tokens, inputs, outputs = trial
    weights, x = torch.ones(max(1, _TOGETHER // tokens), outputs, inputs), torch.ones(tokens, inputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        products = {name: [packer(weight, None) for weight in weights] for name, packer in packers.items()}
        times: dict[str, list[float]] = {name: [] for name in products}
        for _ in range(_TRIALS):
            for name, each in products.items():
                began = time.perf_counter()
                for product in each:
                    product(x)
                times[name].append((time.perf_counter() - began) / len(weights))
    finally:
        torch.set_num_threads(threads)
    return {name: min(measured) for name, measured in times.items()}


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
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS)  # noqa: SLF001 - no public name
    product = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 - no public name

    def forward(x: Tensor) -> Tensor:
        result: Tensor = product(x, packed, bias, "none", [], "")
        return result

    return forward


def _with_onednn_in_float32(weight: Tensor, bias: Tensor | None) -> Product:
    return with_onednn(weight.float(), None if bias is None else bias.float())
