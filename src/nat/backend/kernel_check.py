"""Whether a kernel for packed rows computes what padded attention computes, on this device, forward and backward."""

import torch
from torch import Tensor

from nat.backend.attention import HeadShape
from nat.backend.segments import Kernel, attend
from nat.backend.tree_attention import PackedTree
from nat.errors import describe_error

_SHARED = 70
"""Longer than the tiles of a kernel, as are the rows that go on after it."""
_ROWS = [list(range(_SHARED + 140)), [*range(_SHARED), *range(500, 530)], [*range(_SHARED), 900], [7, 8, 9], [11]]
_WINDOWS = (None, 5, 100)


def disagreement(
    kernel: Kernel, shape: HeadShape, *, dtype: torch.dtype, device: torch.device, most: float
) -> str | None:
    """Why the kernel cannot take the place of padded attention; None if it can.

    Output and gradients may differ by `most`, relative to the largest one.
    """
    tree = PackedTree(_ROWS, device)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(heads, len(tree.token_ids_T), size, generator=generator).to(device, dtype).requires_grad_()
        for heads, size in ((shape.queries, shape.size), (shape.keys, shape.size), (shape.keys, shape.value_size))
    ]
    for window in _WINDOWS:
        padded = _with_gradients(tree.attend(0, *inputs, scale=None, window=window), inputs)
        try:
            out = attend(kernel, tree.segments, *inputs, scale=None, window=window)
            found = _with_gradients(out, inputs)
        except Exception as error:  # noqa: BLE001 - whatever a kernel lacks here, padded attention takes its place
            return describe_error(error)
        for one, other in zip(found, padded, strict=True):
            difference = float((one.float() - other.float()).abs().max() / other.float().abs().max())
            if not difference <= most:
                return f"it differs by {difference:.1e} from padded attention; rounding explains at most {most:.0e}"
    return None


def _with_gradients(out_THD: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """The output, and the gradients of the inputs for a sum in which each value has a weight of its own."""
    weights = torch.linspace(-1, 1, out_THD.numel(), device=out_THD.device).view_as(out_THD).to(out_THD.dtype)
    return out_THD.detach(), *torch.autograd.grad(out_THD, inputs, weights)
