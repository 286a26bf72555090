"""Whether a kernel for packed rows computes what padded attention computes, on this device, forward and backward.

On Apple's GPU, which this code has never run on, padded attention itself is compared with that of the CPU.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from nat.backend.attention import HeadShape
from nat.backend.segments import Kernel, attend
from nat.backend.tree_attention import PackedTree
from nat.errors import ModelNotSupported, describe_error

_SHARED = 70
"""Longer than the tiles of a kernel, as are the rows that go on after it."""
_ROWS = [list(range(_SHARED + 140)), [*range(_SHARED), *range(500, 530)], [*range(_SHARED), 900], [7, 8, 9], [11]]
_WINDOWS = (None, 5, 100)
_MOST_FROM_CPU = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""How far padded attention may be from the CPU's, relative to the largest value."""
_InWindow = Callable[[int | None], tuple[Tensor, ...]]


def disagreement(
    kernel: Kernel, shape: HeadShape, *, dtype: torch.dtype, device: torch.device, most: float
) -> str | None:
    """Why the kernel cannot take the place of padded attention; None if it can.

    Output and gradients may differ by `most`, relative to the largest one.
    """
    here = partial(_attention, shape, dtype, device)
    return _disagreement(partial(here, kernel), partial(here, None), "padded attention", most)


def check_against_cpu(shapes: Sequence[HeadShape], dtype: torch.dtype, device: torch.device) -> None:
    """Check that padded attention gives the outputs and gradients there that it gives on the CPU.

    Raises:
        ModelNotSupported: it does not, or fails.

    """
    for shape in sorted(set(shapes)):
        there, here = (partial(_attention, shape, dtype, place, None) for place in (device, torch.device("cpu")))
        if problem := _disagreement(there, here, "the CPU's", _MOST_FROM_CPU[dtype]):
            raise ModelNotSupported(
                f"attention does not work on {device} with this torch {torch.__version__}: {problem}",
                hint="set device to cpu, or dtype to float32; or install the newest torch",
            )


@torch.enable_grad()  # a reference is loaded without
def _disagreement(found: _InWindow, expected: _InWindow, name: str, most: float) -> str | None:
    """How two ways to compute attention differ in one of the windows, or why the first one fails."""
    for window in _WINDOWS:
        wanted = expected(window)
        try:
            difference = _difference(found(window), wanted)
        except Exception as error:  # noqa: BLE001 - whatever a kernel or a device lacks, another one takes its place
            return describe_error(error)
        if not difference <= most:
            return f"it differs by {difference:.1e} from {name}; rounding explains at most {most:.0e}"
    return None


def _attention(
    shape: HeadShape, dtype: torch.dtype, device: torch.device, kernel: Kernel | None, window: int | None
) -> tuple[Tensor, ...]:
    """The output of a kernel, or of padded attention, and the gradients of the inputs.

    They are those of a sum in which each value of the output has a weight of its own.
    """
    tree, generator = PackedTree(_ROWS, device), torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(heads, len(tree.token_ids_T), size, generator=generator).to(device, dtype).requires_grad_()
        for heads, size in ((shape.queries, shape.size), (shape.keys, shape.size), (shape.keys, shape.value_size))
    ]
    if kernel is None:
        out_THD = tree.attend(0, *inputs, scale=None, window=window)
    else:
        out_THD = attend(kernel, tree.segments, *inputs, scale=None, window=window)
    weights = torch.linspace(-1, 1, out_THD.numel(), device=device).view_as(out_THD).to(dtype)
    return out_THD.detach(), *torch.autograd.grad(out_THD, inputs, weights)


def _difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of one of the tensors, relative to its largest value; NaN if one has a NaN."""
    pairs = [(one.float().cpu(), other.float().cpu()) for one, other in zip(found, expected, strict=True)]
    return float(torch.stack([(one - other).abs().max() / other.abs().max() for one, other in pairs]).max())
