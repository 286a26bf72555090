"""Shapes in which a token's numbers do not depend, to the bit, on what is computed beside it; for `deterministic`.

A product of matrices sums in an order that may follow from its number of rows and a row's place in it, and attention in
one that follows from its number of keys. So products with weights are oneDNN's and get a few rows at least, each token
attends alone, and keys fill blocks of lengths that sum alike on this processor, which is measured; no choice depends on
a time. What the hidden states of a token are then follows from the tokens before it alone: not from a chunk's
beginning, from a cache or from other sequences. A model is loaded only if this is so here.

Shapes: T tokens, N rows, H query heads, G key/value heads, L keys, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nat.backend.products import has_onednn, onednn_has_bfloat16, onednn_product
from nat.errors import ModelNotSupported

LEAST_ROWS = 8
"""Rows that each product has at least. With fewer, oneDNN sums in another order."""
_BLOCK = 512
"""Keys that torch's attention on CPUs sums at a time."""
_STEP = 64
_VECTOR, _PART = 128, 2**14
"""Elements that are whole vectors on every processor, and of a part that torch does not share among threads."""
_OF_TENSORS = ("sigmoid", "tanh", "exp", "expm1", "log1p", "erf", "sin", "cos")
_CURVES = frozenset(
    getattr(module, name)
    for module, names in (
        (F, ("silu", "gelu", "softplus", "mish", "elu", "logsigmoid")),
        (torch, _OF_TENSORS),
        (Tensor, _OF_TENSORS),
    )
    for name in names
)
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

    @staticmethod
    def rows(count: int) -> int:
        """The number of rows to compute with, at least `count`."""
        return max(count, LEAST_ROWS)


def fixed_shapes(sizes: Sequence[int], dtype: torch.dtype) -> FixedShapes:
    """Measure the lengths of blocks for heads of these sizes: those that give what whole blocks give, to the bit."""
    lasts = [last for last in range(_STEP, _BLOCK, _STEP) if all(_sums_alike(last, size, dtype) for size in sizes)]
    return FixedShapes([*lasts, _BLOCK])


@torch.inference_mode()
def _sums_alike(last: int, size: int, dtype: torch.dtype) -> bool:
    random = torch.Generator().manual_seed(last)
    query, key, value = (
        torch.randn(_PROBED, _PROBED, length, size, generator=random).to(dtype)
        for length in (LEAST_ROWS, _BLOCK, _BLOCK)
    )
    mask = torch.zeros(1, _BLOCK, dtype=dtype)
    mask[:, last:] = -torch.inf
    whole = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    short = F.scaled_dot_product_attention(query, key[:, :, :last], value[:, :, :last], attn_mask=mask[:, :last])
    return torch.equal(whole, short)


def at_least(indices_K: Tensor) -> Tensor:
    """The indices, the last one repeated until they are enough for a product."""
    missing = FixedShapes.rows(len(indices_K)) - len(indices_K)
    return indices_K if missing <= 0 else torch.cat([indices_K, indices_K[-1:].expand(missing)])


class RepeatableLayers(TorchFunctionMode):
    """Products with weights as oneDNN computes them, of a few rows at least, and activations in whole vectors.

    What MKL computes may follow from any number of rows; on processors without AVX-512 it does. torch computes what is
    left of a tensor, or of a thread's part of it, after the last whole vector with other functions.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of each of its functions."""
        kwargs = kwargs or {}
        if func in _CURVES:
            return _in_vectors(func, *args, **kwargs)
        if has_onednn():
            if func is F.linear:
                return _product(*args, **kwargs)
            if func is torch.addmm and not kwargs:  # GPT-2's layers
                bias, x_TK, weight_KN = args
                return _product(x_TK, weight_KN.t(), bias)
            if func is Tensor.addmm_ and kwargs.keys() == {"alpha"}:  # adapters
                out_TN, x_TK, weight_KN = args
                return out_TN.add_(_product(x_TK, weight_KN.t()).mul_(kwargs["alpha"]))
            if func is torch._grouped_mm:  # noqa: SLF001 - experts; its public form calls it
                x_TK, weight_EKN = args
                parts = torch.tensor_split(x_TK, kwargs["offs"].tolist())  # one more for what no expert gets
                found = [_product(part, weight_KN.t()) for part, weight_KN in zip(parts, weight_EKN, strict=False)]
                return torch.cat([*found, parts[-1].new_zeros(len(parts[-1]), weight_EKN.shape[2])])
        return func(*args, **kwargs)


def _in_vectors(curve: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A function of each element, in parts that one thread computes as whole vectors."""
    flat = x.reshape(-1)
    missing = -len(flat) % _VECTOR
    parts = torch.split(F.pad(flat, (0, missing)) if missing else flat, _PART)
    return torch.cat([curve(part, *args, **kwargs) for part in parts])[: len(flat)].view(x.shape)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply x [..., K] by a weight [N, K]."""
    rows, dtype = x.numel() // x.shape[-1], x.dtype
    x_RK = x.reshape(rows, x.shape[-1])
    if missing := FixedShapes.rows(rows) - rows:
        x_RK = F.pad(x_RK, (0, 0, 0, missing))
    if dtype == torch.bfloat16 and not onednn_has_bfloat16():
        x_RK, weight, bias = x_RK.float(), weight.float(), None if bias is None else bias.float()
    out_RN = onednn_product(x_RK, weight, bias).to(dtype)
    return out_RN[:rows].reshape(*x.shape[:-1], len(weight))


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
