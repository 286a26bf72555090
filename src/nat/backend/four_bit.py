"""Linear layers with frozen weights of four bits (NF4), as the base of LoRA adapters: QLoRA, arXiv:2305.14314.

A block of 64 weights has a scale, its largest magnitude in fp32; a weight is the nearest of 16 levels of it. That takes
0.5625 bytes per weight. Products compute with the weights that the codes stand for, in the precision of their input;
the backward pass decodes them again instead of keeping them. Codes and scales are those of bitsandbytes' `nf4` without
double quantization, so that adapters fit a base that it loads.

Shapes: N blocks, B weights of a block.
"""

import logging
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from nat.backend.decoder_parts import decoder_linears, expert_weights
from nat.errors import ModelNotSupported
from nat.sizing.rules import WEIGHT_BLOCK

logger = logging.getLogger(__name__)

# Quantiles of the normal distribution, from the paper's appendix E.
_LEVELS = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
])  # fmt: skip
_BOUNDS = (_LEVELS[1:] + _LEVELS[:-1]) / 2
_PAIRS = torch.cartesian_prod(_LEVELS, _LEVELS).view(torch.int64).flatten()
"""The two levels that each byte stands for, upper four bits first, as one value: the look-up is faster."""


class FourBitLinear(nn.Linear):
    """A linear layer whose `weight` holds codes, two in each byte; it has no gradient, its input has one."""

    scales: Tensor
    pairs: Tensor

    def __init__(self, source: nn.Linear) -> None:
        """Round the weights of `source` to bf16 before, so that the codes do not depend on its precision."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = source.in_features, source.out_features
        self.bias = None if source.bias is None else nn.Parameter(source.bias.detach(), requires_grad=False)
        weight = source.weight.detach().bfloat16().float().flatten()
        blocks_NB = F.pad(weight, (0, -len(weight) % WEIGHT_BLOCK)).view(-1, WEIGHT_BLOCK)
        scale_N = blocks_NB.abs().amax(1)
        unit_NB = blocks_NB / scale_N.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
        codes = torch.bucketize(unit_NB, _BOUNDS.to(weight.device), out_int32=True).to(torch.uint8).view(-1, 2)
        self.weight = nn.Parameter(codes[:, 0] << 4 | codes[:, 1], requires_grad=False)
        self.register_buffer("scales", scale_N)
        self.register_buffer("pairs", _PAIRS.to(weight.device))

    def decoded(self, dtype: torch.dtype) -> Tensor:
        """The weights [out_features, in_features] that the codes stand for."""
        level_NB = self.pairs.index_select(0, self.weight.int()).view(torch.float32).view(-1, WEIGHT_BLOCK)
        weight = level_NB.mul_(self.scales.unsqueeze(1)).flatten()[: self.in_features * self.out_features]
        return weight.view(self.out_features, self.in_features).to(dtype)

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = _Product.apply(input, self)  # type: ignore[no-untyped-call]  # torch has no types for it
        return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: FourBitLinear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.decoded(x.dtype), layer.bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        return grad @ ctx.layer.decoded(grad.dtype), None


def quantize(model: PreTrainedModel, device: torch.device) -> None:
    """Replace the decoder's linear layers by four-bit ones on the device, in place; routers keep all bits.

    Experts that are no linear layers keep them, too, which a warning says.

    Raises:
        ModelNotSupported: there are none, as in GPT-2.

    """
    names = [name for name in decoder_linears(model) if isinstance(model.get_submodule(name), nn.Linear)]
    if not names:
        raise ModelNotSupported(
            f"{type(model).__name__} has no torch.nn.Linear layers that load_in_4bit could quantize",
            hint="leave out load_in_4bit, or use a model such as Qwen2, Qwen3, Llama or Mistral",
        )
    for name in names:
        source = model.get_submodule(name)
        assert isinstance(source, nn.Linear), "chosen above"
        model.set_submodule(name, FourBitLinear(source.to(device)))
    codes = sum(module.weight.numel() for module in model.modules() if isinstance(module, FourBitLinear))
    others = sum(weight.numel() for weight in model.parameters() if weight.is_floating_point())
    logger.info("load_in_4bit: %d weights have four bits, %d others do not", 2 * codes, others)
    if experts := expert_weights(model):
        logger.warning(
            "load_in_4bit leaves the experts of %s in full size: %.0f%% of its weights are tensors with three "
            "dimensions, not linear layers",
            *(type(model).__name__, 100 * experts / (2 * codes + others)),
        )


def decode(model: nn.Module) -> None:
    """Replace all four-bit layers by plain ones with the weights that they compute with, in fp32, in place."""
    for name, layer in [(n, m) for n, m in model.named_modules() if isinstance(m, FourBitLinear)]:
        plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        plain.weight, plain.bias = nn.Parameter(layer.decoded(torch.float32)), layer.bias
        model.set_submodule(name, plain)


def is_quantized(model: nn.Module) -> bool:
    """True if the base weights have four bits."""
    return any(isinstance(module, FourBitLinear) for module in model.modules())
