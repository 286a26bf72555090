"""Linear layers on the CPU with weights that are reordered once, instead of in every matrix product.

A matrix product reorders its weights for the processor's vector units. With a few tokens, as in decoding, that takes
as long as the product itself. So the sampler uses reordered copies, in the layout of oneDNN, or for float32 in that of
MKL where it is faster, as on Intel's processors. Both serve any number of tokens. These operators of torch have no
public names. The learner changes the weights, so it uses the weights themselves.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn

from nat.heap import return_free_pages
from nat.sizing.rules import SMALLEST_PACKED

logger = logging.getLogger(__name__)

_TOKENS = 512
"""Number of tokens that the layout is chosen for; a product with fewer or more is as exact and nearly as fast."""
_TRIAL = 16, 768, 768
"""Tokens, and size of the weights, of the products that are timed."""
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

    def __init__(self, model: nn.Module, wide: nn.Module | None = None) -> None:
        """Does nothing on other devices than a CPU, and for other precisions than float32 and bfloat16.

        The layer `wide` computes in float32, whatever its weights are in.
        """
        self._layers = [
            _Layer(module, packer)
            for module in model.modules()
            if isinstance(module, nn.Linear)
            and module.weight.numel() >= SMALLEST_PACKED
            and (packer := _packer(module.weight, wide=module is wide))
        ]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute without gradients from the reordered weights inside the block.

        MKL asks for 9 MB more than it writes for each layer. In fresh pages these cost nothing; in pages that an update
        has used and freed they would take several times the memory of the weights.
        """
        if stale := [layer for layer in self._layers if layer.stale]:
            return_free_pages()
        for layer in stale:
            layer.pack()
        for layer in self._layers:
            layer.use()
        try:
            yield
        finally:
            for layer in self._layers:
                layer.leave()

    def forget(self) -> None:
        """Drop the copies of weights that training changes; the next use makes them again."""
        for layer in self._layers:
            layer.forget()


class _Layer:
    """A linear layer whose `forward` can be exchanged."""

    def __init__(self, module: nn.Linear, packer: Packer) -> None:
        self._module = module
        self._packer = packer
        self._product: Product | None = None
        self._usual: Product | None = None
        """What the learner has put in place of the layer's own method, if anything."""
        self._source = 0
        """Address of the weights that were reordered; training may put others in their place."""

    @property
    def stale(self) -> bool:
        """Whether the weights have to be reordered before the next use."""
        return self._product is None or self._source != self._module.weight.data_ptr()

    def pack(self) -> None:
        weight, bias = self._module.weight.detach(), self._module.bias
        self._product = self._packer(weight, None if bias is None else bias.detach())
        self._source = weight.data_ptr()

    def use(self) -> None:
        self._usual = vars(self._module).get("forward")
        vars(self._module)["forward"] = self._product  # ten times as fast as setattr, which looks for parameters

    def leave(self) -> None:
        if self._usual is None:
            del vars(self._module)["forward"]
        else:
            vars(self._module)["forward"] = self._usual

    def forget(self) -> None:
        if self._module.weight.requires_grad:
            self._product = None


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
    weight, x = torch.ones(outputs, inputs), torch.ones(tokens, inputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        products = {name: packer(weight, None) for name, packer in packers.items()}
        times: dict[str, list[float]] = {name: [] for name in products}
        for _ in range(_TRIALS):
            for name, product in products.items():
                began = time.perf_counter()
                product(x)
                times[name].append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return {name: min(measured) for name, measured in times.items()}


def with_mkl(weight: Tensor, bias: Tensor | None) -> Product:
    """Reorder a weight of float32 for MKL."""
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, _TOKENS)  # noqa: SLF001 - no public name
    product, width = torch.ops.mkl._mkl_linear.default, weight.shape[1]  # noqa: SLF001 - no public name

    def forward(x: Tensor) -> Tensor:
        result: Tensor = product(x, packed, weight, bias, x.numel() // width)
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
