"""AdamW's two moments of one parameter, in fp32 or in eight bits a value.

The eight bits are a logarithm, eight steps to a factor of two, relative to the largest magnitude in a block of 128
values (as in block-wise 8-bit optimizers, arXiv:2110.02861, which use a table of values instead). The mean has a sign
and reaches down to 2^-15.75 of the largest, smaller ones are zero. The mean square reaches down to 2^-31.75, where it
stays, because AdamW divides by its root. A value is rounded up or down at random, in proportion: rounded to the
nearest, a moment that changes by less than half a step at a time would never change.

Shapes: N blocks, B values of a block.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nat.sizing.rules import MOMENT_BLOCK

KINDS = ("step", "exp_avg", "exp_avg_sq", "exp_avg_code", "exp_avg_largest", "exp_avg_sq_code", "exp_avg_sq_largest")
"""Names of the tensors that moments are stored as."""
_STEPS = 8
"""Codes per factor of two."""
_PART = 2**15
"""Blocks that are packed or unpacked at once: what this takes besides does not grow with the parameter."""
_SIGNED, _UNSIGNED = 127, 255
"""The code of a block's largest magnitude, with and without a sign; zero is the code of zero."""


@dataclass
class Moments:
    """The moments of one parameter in fp32, for a step."""

    step: Tensor
    average: Tensor
    square: Tensor

    @classmethod
    def zeros(cls, like: Tensor) -> "Moments":
        return cls(torch.zeros((), device=like.device), torch.zeros_like(like), torch.zeros_like(like))

    @classmethod
    def load(cls, stored: Mapping[str, Tensor], like: Tensor) -> "Moments":
        """Unpack what `pack8` or `pack32` gave; the latter's tensors are not copied."""
        if "exp_avg" in stored:
            return cls(stored["step"], stored["exp_avg"], stored["exp_avg_sq"])
        average, square = (
            _decode(stored[f"{name}_code"], stored[f"{name}_largest"], like) for name in ("exp_avg", "exp_avg_sq")
        )
        return cls(stored["step"], average, square)

    def pack32(self) -> dict[str, Tensor]:
        """Keep all bits."""
        return {"step": self.step, "exp_avg": self.average, "exp_avg_sq": self.square}

    def pack8(self) -> dict[str, Tensor]:
        """Keep eight bits per value, and the largest value of each block; the same step rounds the same way again."""
        random = torch.Generator(self.average.device).manual_seed(int(self.step))
        packed = {"step": self.step}
        for name, values, top in (("exp_avg", self.average, _SIGNED), ("exp_avg_sq", self.square, _UNSIGNED)):
            packed[f"{name}_code"], packed[f"{name}_largest"] = _encode(values, top, random)
        return packed


def _encode(values: Tensor, top: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Codes [N, B], int8 with a sign or uint8 without, and the largest magnitude of each block [N]."""
    flat = values.flatten()
    blocks_NB = F.pad(flat, (0, -len(flat) % MOMENT_BLOCK)).view(-1, MOMENT_BLOCK)
    codes, largest = zip(*(_encode_part(part, top, random) for part in torch.split(blocks_NB, _PART)), strict=True)
    return torch.cat(codes), torch.cat(largest)


def _encode_part(blocks_NB: Tensor, top: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    size_NB = blocks_NB.abs()
    largest_N = size_NB.amax(1)
    exact_NB = (
        (size_NB / largest_N.clamp(min=torch.finfo(size_NB.dtype).tiny).unsqueeze(1)).log2_().mul_(_STEPS).add_(top)
    )
    drawn_NB = torch.rand(exact_NB.shape, generator=random, device=exact_NB.device, dtype=exact_NB.dtype)
    code_NB = exact_NB.add_(drawn_NB).floor_()
    if top == _UNSIGNED:
        return code_NB.clamp_(1, top).mul_(size_NB > 0).to(torch.uint8), largest_N
    return code_NB.clamp_(0, top).mul_(blocks_NB.sign()).to(torch.int8), largest_N


def _decode(code_NB: Tensor, largest_N: Tensor, like: Tensor) -> Tensor:
    top = _UNSIGNED if code_NB.dtype == torch.uint8 else _SIGNED
    found_NB = torch.empty(code_NB.shape, dtype=largest_N.dtype, device=code_NB.device)
    for codes_NB, sizes_N, part_NB in zip(
        *(torch.split(each, _PART) for each in (code_NB, largest_N, found_NB)), strict=True
    ):
        number_NB = codes_NB.to(sizes_N.dtype)
        size_NB = ((number_NB.abs() - top) / _STEPS).exp2_().mul_(sizes_N.unsqueeze(1))
        part_NB.copy_(size_NB.mul_(number_NB.sign()))
    return found_NB.flatten()[: like.numel()].view_as(like)
