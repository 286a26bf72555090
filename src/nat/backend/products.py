"""Matrix products of linear layers on the CPU, and which of them is fastest here: it depends on the processor.

With a few tokens, as in decoding, reading the weights takes most of the time, so a layout for the processor's vector
units helps: oneDNN's, or for float32 that of MKL, as on Intel's processors. With many tokens a product reorders its
weights in passing. On AMD's processors MKL computes with generic kernels. The operators of torch for reordered weights
have no public names.
"""

import logging
import time
from collections.abc import Callable, Mapping
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

logger = logging.getLogger(__name__)

_TOKENS = 512
"""Number of tokens that the layout is chosen for; a product with fewer or more is as exact and nearly as fast."""
_TRIAL = 8, 768, 768
"""Tokens, and size of the weights, of the products that are timed."""
_TRIAL_OF_MANY = 512, 768, 768
"""The same for a prompt, and for the learner."""
_TOGETHER = 128
"""Tokens times weights of a trial: with few tokens many weights are used in turn, so that they come from memory, as
those of a model do."""
_TRIALS = 10
_FASTER = 0.9
"""Share of MKL's time below which oneDNN is used; near 1 the choice, and with it the rounding, would be chance."""
_MUCH_FASTER = 0.7
"""Share of float32's time below which bfloat16 is worth its rounding."""

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
def fastest_packer() -> Packer | None:
    """The layout that is faster for float32 on this machine, if there is one."""
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # as oneDNN's
    if has_mkl and has_onednn():
        return fastest("the sampler's", {"MKL": with_mkl, "oneDNN": with_onednn}, _TRIAL)
    return with_mkl if has_mkl else with_onednn if has_onednn() else None


def usual_packer() -> Packer | None:
    """The layout for float32 where a trial must not choose it."""
    return with_onednn if has_onednn() else None


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN computes products of many tokens in float32 faster than torch's own operator."""
    if not has_onednn():
        return False
    packers: dict[str, Packer] = {"MKL": with_torch, "oneDNN": with_plain_onednn}
    return fastest("the learner's", packers, _TRIAL_OF_MANY) is with_plain_onednn


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


def with_torch(weight: Tensor, bias: Tensor | None) -> Product:
    """Compute with torch's own operator."""
    return partial(F.linear, weight=weight, bias=bias)


def with_plain_onednn(weight: Tensor, bias: Tensor | None) -> Product:
    """Compute with oneDNN, without reordering the weight."""
    return partial(onednn_product, weight=weight, bias=bias)


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
    return with_plain_onednn(torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS), bias)  # noqa: SLF001 - no public name


@cache
def bfloat16_is_faster() -> bool:
    """Whether this CPU computes the products of sampler and learner much faster in bfloat16 than in float32."""
    sampler = fastest_packer()
    if sampler is None or not onednn_has_bfloat16():
        return False
    learner = with_plain_onednn if onednn_is_faster() else with_torch
    found = {
        "sampler": product_times({"float32": sampler, "bfloat16": _in_bfloat16(with_onednn)}, _TRIAL),
        "learner": product_times({"float32": learner, "bfloat16": _in_bfloat16(with_torch)}, _TRIAL_OF_MANY),
    }
    shares = {whose: times["bfloat16"] / times["float32"] for whose, times in found.items()}
    logger.info("a product in bfloat16 takes this share of its time in float32: %s", shares)
    return max(shares.values()) < _MUCH_FASTER


def _in_bfloat16(packer: Packer) -> Packer:
    def pack(weight: Tensor, bias: Tensor | None) -> Product:
        product = packer(weight.bfloat16(), bias)
        return lambda x: product(x.bfloat16())

    return pack
