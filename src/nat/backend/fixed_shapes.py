"""Shapes in which a token's numbers do not depend, to the bit, on what is computed beside it; for `deterministic`.

A product of matrices sums in an order that may follow from its number of rows and a row's place in it, and attention in
one that follows from its number of keys. So products with weights are oneDNN's and get a few rows at least, each token
attends alone, and its keys fill blocks of lengths that sum alike on this processor, which is measured; no choice
depends on a time. What the hidden states of a token are then follows from the tokens before it alone: not from a
chunk's beginning, from a cache or from other sequences. A model is loaded only if this is so here.

Shapes: N rows, K inputs, M outputs, E experts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nat.backend.attention import HeadShape
from nat.backend.products import Product, has_onednn, onednn_has_bfloat16, with_plain_onednn
from nat.errors import ModelNotSupported

LEAST_ROWS = 8
"""Rows that each product has at least. With fewer, oneDNN sums in another order."""
_BLOCK = 512
"""Keys that torch's attention on CPUs sums at a time."""
_STEP = 64
_VECTOR, _PART = 128, 2**14
"""Elements that are whole vectors on every processor, and of a part that torch does not share among threads."""
_CURVES = "sigmoid", "tanh", "exp", "expm1", "log1p", "erf", "sin", "cos"
_ACTIVATIONS = "silu", "gelu", "softplus", "mish", "elu", "logsigmoid"
_PROBED = 4
"""Heads and sequences of a trial."""
OTHER_MODE = "leave `deterministic` out; then equal tokens, but not equal bits, are to be expected"


@dataclass(frozen=True)
class FixedShapes:
    """Of a model on this machine."""

    lasts: Sequence[int]
    """Lengths that the last block of keys may have, rising; it may always be a whole one."""

    def keys(self, length: int) -> int:
        """The number of keys to compute with, at least `length`; those after a sequence's end are masked."""
        whole, rest = divmod(length, _BLOCK)
        return whole * _BLOCK + (next(last for last in self.lasts if last >= rest) if rest else 0)


def fixed_shapes(heads: Iterable[HeadShape], dtype: torch.dtype) -> FixedShapes:
    """Measure the lengths of blocks for these heads: those that give what whole blocks give, to the bit."""
    different = set(heads)
    lasts = [last for last in range(_STEP, _BLOCK, _STEP) if all(_sums_alike(last, each, dtype) for each in different)]
    return FixedShapes([*lasts, _BLOCK])


@torch.inference_mode()
def _sums_alike(last: int, heads: HeadShape, dtype: torch.dtype) -> bool:
    random = torch.Generator().manual_seed(last)
    sizes = (heads.queries // heads.keys, heads.size), (_BLOCK, heads.size), (_BLOCK, heads.value_size)
    query, key, value = (torch.randn(_PROBED, _PROBED, *each, generator=random).to(dtype) for each in sizes)
    mask = torch.zeros(1, _BLOCK, dtype=dtype)
    mask[:, last:] = -torch.inf
    whole = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    short = F.scaled_dot_product_attention(query, key[:, :, :last], value[:, :, :last], attn_mask=mask[:, :last])
    return torch.equal(whole, short)


class RepeatableLayers(TorchFunctionMode):
    """Products with weights as oneDNN computes them, of a few rows at least, and activations in whole vectors.

    What MKL computes may follow from any number of rows; on processors without AVX-512 it does. torch computes what is
    left of a tensor, or of a thread's part of it, after the last whole vector with other functions.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of each of its functions."""
        return _REPEATABLE.get(func, func)(*args, **(kwargs or {}))


def with_enough_rows(product: Product, x: Tensor) -> Tensor:
    """A product of x [..., K] with a few rows at least; those that it lacks are zeros."""
    x_NK = x.reshape(-1, x.shape[-1])
    if (rows := len(x_NK)) >= LEAST_ROWS:
        return product(x)
    out_NM = product(F.pad(x_NK, (0, 0, 0, LEAST_ROWS - rows)))[:rows]
    return out_NM.reshape(*x.shape[:-1], out_NM.shape[-1])


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not has_onednn():
        return F.linear(x, weight, bias)
    if x.dtype == torch.bfloat16 and not onednn_has_bfloat16():
        return _linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
    return with_enough_rows(with_plain_onednn(weight, bias), x)


def _addmm(added: Tensor, x_NK: Tensor, weight_KM: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * added + _linear(x_NK, weight_KM.t()).mul_(alpha)


def _addmm_(out_NM: Tensor, x_NK: Tensor, weight_KM: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return out_NM.copy_(_addmm(out_NM, x_NK, weight_KM, beta=beta, alpha=alpha))


def _grouped_mm(x_NK: Tensor, weight_EKM: Tensor, offs: Tensor, bias: None = None, out_dtype: None = None) -> Tensor:
    assert bias is None, "torch has none yet"
    assert out_dtype is None, "transformers asks for none"
    *parts, unused = torch.tensor_split(x_NK, offs.tolist())
    found = [_linear(part, weight_KM.t()) for part, weight_KM in zip(parts, weight_EKM, strict=True)]
    return torch.cat([*found, unused.new_zeros(len(unused), weight_EKM.shape[2])])


def _in_vectors(curve: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A function of each element, in parts that one thread computes as whole vectors."""
    flat = x.reshape(-1)
    missing = -len(flat) % _VECTOR
    parts = torch.split(F.pad(flat, (0, missing)) if missing else flat, _PART)
    return torch.cat([curve(part, *args, **kwargs) for part in parts])[: len(flat)].view(x.shape)


def _curves(module: object, names: Iterable[str]) -> Mapping[Any, Callable[..., Tensor]]:
    return {getattr(module, name): partial(_in_vectors, getattr(module, name)) for name in names}


_REPEATABLE: Mapping[Any, Callable[..., Tensor]] = {
    **_curves(F, _ACTIVATIONS),
    **_curves(torch, _CURVES),
    **_curves(Tensor, _CURVES),
    F.linear: _linear,
    torch.addmm: _addmm,  # the layers of GPT-2
    Tensor.addmm_: _addmm_,  # adapters
    torch._grouped_mm: _grouped_mm,  # noqa: SLF001 - experts; its public form calls it
}
"""What computes in place of torch's functions."""


def repeat_sums() -> None:
    """Let torch add gradients of the same weight in one order in this process, though threads deliver them in any."""
    torch.use_deterministic_algorithms(mode=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # torch has no type for it


def check_device(device: torch.device) -> None:
    """Refuse GPUs.

    Raises:
        ModelNotSupported: it is no CPU.

    """
    if device.type != "cpu":
        raise ModelNotSupported(
            f"deterministic: the model is on {device}, whose libraries choose kernels by the number of rows and sum in "
            "another order in each; equal bits are promised on CPUs only",
            hint=f"set device to cpu, or {OTHER_MODE}",
        )
