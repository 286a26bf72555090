"""Shapes in which a token's numbers do not depend, to the bit, on what is computed beside it; for `deterministic`.

A product of matrices sums in an order that may follow from its number of rows, and attention in one that follows from
its number of keys. So products get a few rows at least, and keys fill blocks of lengths that sum alike on this
processor, which is measured; no choice depends on a time. What the hidden states of a token are then follows from the
tokens before it alone: not from a chunk's beginning, from a cache or from other sequences. A model is loaded only if
this is so here.

Shapes: T tokens, N rows, H query heads, G key/value heads, L keys, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from nat.errors import ModelNotSupported

LEAST_ROWS = 8
"""Rows that each product has at least. With fewer, MKL and oneDNN sum in another order."""
_BLOCK = 512
"""Keys that torch's attention on CPUs sums at a time."""
_STEP = 64
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
