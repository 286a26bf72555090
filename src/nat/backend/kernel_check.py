"""Whether a kernel for packed rows computes what padded attention computes, on this device, forward and backward.

On Apple's GPU, which this code has never run on, padded attention itself is compared with that of the CPU.
"""

from collections.abc import Sequence

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


@torch.enable_grad()  # a reference is loaded without
def disagreement(
    kernel: Kernel, shape: HeadShape, *, dtype: torch.dtype, device: torch.device, most: float
) -> str | None:
    """Why the kernel cannot take the place of padded attention; None if it can.

    Output and gradients may differ by `most`, relative to the largest one.
    """
    tree = PackedTree(_ROWS, device)
    inputs = _inputs(shape, tree, dtype, device)
    for window in _WINDOWS:
        padded = _with_gradients(tree.attend(0, *inputs, scale=None, window=window), inputs)
        try:
            out = attend(kernel, tree.segments, *inputs, scale=None, window=window)
            found = _with_gradients(out, inputs)
        except Exception as error:  # noqa: BLE001 - whatever a kernel lacks here, padded attention takes its place
            return describe_error(error)
        if not (difference := _difference(found, padded)) <= most:
            return f"it differs by {difference:.1e} from padded attention; rounding explains at most {most:.0e}"
    return None


@torch.enable_grad()
def check_against_cpu(shapes: Sequence[HeadShape], dtype: torch.dtype, device: torch.device) -> None:
    """Check that padded attention gives the outputs and gradients there that it gives on the CPU.

    Raises:
        ModelNotSupported: it does not, or fails.

    """
    most = _MOST_FROM_CPU[dtype]
    for shape in sorted(set(shapes)):
        for window in _WINDOWS:
            try:
                found = []
                for place in (device, torch.device("cpu")):
                    tree = PackedTree(_ROWS, place)
                    inputs = _inputs(shape, tree, dtype, place)
                    found.append(_with_gradients(tree.attend(0, *inputs, scale=None, window=window), inputs))
                difference = _difference(*found)
            except Exception as error:
                raise _not_there(device, describe_error(error)) from error
            if not difference <= most:
                what = f"it differs by {difference:.1e} from the CPU's; rounding explains at most {most:.0e}"
                raise _not_there(device, what)


def _not_there(device: torch.device, reason: str) -> ModelNotSupported:
    return ModelNotSupported(
        f"attention does not work on {device} with this torch {torch.__version__}: {reason}",
        hint="set device to cpu, or dtype to float32; or install the newest torch",
    )


def _inputs(shape: HeadShape, tree: PackedTree, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(heads, len(tree.token_ids_T), size, generator=generator).to(device, dtype).requires_grad_()
        for heads, size in ((shape.queries, shape.size), (shape.keys, shape.size), (shape.keys, shape.value_size))
    ]


def _difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of one of the tensors, relative to its largest value; NaN if one has a NaN."""
    pairs = [(one.float().cpu(), other.float().cpu()) for one, other in zip(found, expected, strict=True)]
    return float(torch.stack([(one - other).abs().max() / other.abs().max() for one, other in pairs]).max())


def _with_gradients(out_THD: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """The output, and the gradients of the inputs for a sum in which each value has a weight of its own."""
    weights = torch.linspace(-1, 1, out_THD.numel(), device=out_THD.device).view_as(out_THD).to(out_THD.dtype)
    return out_THD.detach(), *torch.autograd.grad(out_THD, inputs, weights)
