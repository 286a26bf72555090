"""Log probabilities and entropies of chosen tokens, straight from hidden states and the head's weight.

Logits are computed only where a token was sampled, for one block of the vocabulary at a time, and never exist as
[tokens, vocabulary]. A model that does more to its logits than a linear layer, such as a soft cap, computes its head
over chunks of the tokens instead, and the backward pass recomputes each chunk.

The backward pass of the fused linear cross-entropy computes each block again: the gradient of log p(t) with respect to
the logits is (onehot(t) - softmax) / T. If the head is frozen, as under LoRA, the forward pass already sums up
softmax @ weight, so the backward pass needs no block.

Shapes: K chosen tokens, C a chunk of them, H hidden size, V vocabulary, B a block of it.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from nat.backend.attention import PackedBatch, hidden_states
from nat.backend.decoder_parts import head as head_of
from nat.sizing.rules import MAX_LOGITS, logits_at_a_time


class TokenScores(NamedTuple):
    """Scores of K tokens, in fp32 or better."""

    logprobs_K: Tensor
    entropy_K: Tensor
    """Entropy of the distribution that each token was drawn from; without a gradient."""


def token_scores(
    model: PreTrainedModel,
    packed: PackedBatch,
    keep_K: Tensor,
    targets_K: Tensor,
    temperatures_K: Tensor | None = None,
    *,
    max_logits: int | None = None,
) -> TokenScores:
    """Score `targets_K`, each at the packed output `keep_K`; differentiable where gradients are on.

    Each is scored under softmax(logits / T) with its own temperature T; None stands for 1 everywhere. `max_logits`
    bounds the logits in memory at a time; None chooses by the device.
    """
    hidden_KH = hidden_states(model, packed)[keep_K]
    linear = linear_head(model)
    if linear is not None:
        most = max_logits or logits_at_a_time(len(hidden_KH), cpu=hidden_KH.device.type == "cpu")
        return linear_scores(hidden_KH, linear, targets_K, temperatures_K, max_logits=most)
    after = head_of(model)

    def score_chunk(hidden_CH: Tensor, targets_C: Tensor, temperatures_C: Tensor | None) -> TokenScores:
        logits_CV = after(inputs_embeds=hidden_CH.unsqueeze(0), use_cache=False).logits[0]
        wide = torch.promote_types(logits_CV.dtype, torch.float32)
        if temperatures_C is not None:
            logits_CV = logits_CV.to(wide) / temperatures_C.to(wide).unsqueeze(1)
        logprobs_CV = torch.log_softmax(logits_CV, dim=-1, dtype=wide)
        with torch.no_grad():
            entropy_C = -(logprobs_CV.exp() * logprobs_CV).nansum(dim=-1)
        return TokenScores(logprobs_CV.gather(1, targets_C.unsqueeze(1)).squeeze(1), entropy_C)

    chunk = max(1, (max_logits or MAX_LOGITS) // model.config.get_text_config().vocab_size)
    temperatures = repeat(None) if temperatures_K is None else torch.split(temperatures_K, chunk)
    parts = [
        checkpoint(score_chunk, hidden_CH, targets_C, temperatures_C, use_reentrant=False)
        for hidden_CH, targets_C, temperatures_C in zip(
            torch.split(hidden_KH, chunk), torch.split(targets_K, chunk), temperatures, strict=False
        )
    ]
    return TokenScores(torch.cat([part.logprobs_K for part in parts]), torch.cat([part.entropy_K for part in parts]))


@torch.no_grad()
def linear_head(model: PreTrainedModel) -> nn.Linear | None:
    """The model's output layer, if it is linear and its outputs are the logits; None if the model scales or caps them.

    The model without its decoder and output layer, run on a few numbers, must give the same numbers.
    """
    layer = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no type for it
    name = next((name for name, module in model.named_children() if module is layer), None)
    if name is None or type(layer) is not nn.Linear:
        return None
    same = nn.Identity()
    same.weight = layer.weight  # some models look at its precision
    numbers = torch.linspace(-100, 100, layer.in_features, device=model.device, dtype=model.dtype).view(1, 1, -1)
    unchanged = head_of(model, **{name: same})(inputs_embeds=numbers, use_cache=False).logits
    return layer if torch.equal(unchanged.to(numbers.dtype), numbers) else None


def linear_scores(
    hidden_KH: Tensor, head: nn.Linear, targets_K: Tensor, temperatures_K: Tensor | None, *, max_logits: int
) -> TokenScores:
    """Score `targets_K` under softmax(head(hidden) / T), with at most `max_logits` logits at a time (at least K).

    Logits have the dtype of the hidden states, other products that of the head, everything else fp32 or better.
    Differentiable with respect to the hidden states and the head; temperatures of None stand for 1.
    """
    inverse_K1 = None if temperatures_K is None else temperatures_K.to(_wide(hidden_KH)).reciprocal().unsqueeze(1)
    size = max(1, max_logits // max(1, len(hidden_KH)))
    inputs = (hidden_KH, head.weight, head.bias, targets_K, inverse_K1, size, torch.is_grad_enabled())
    return TokenScores(*_LinearScores.apply(*inputs))  # type: ignore[no-untyped-call]  # torch has no type for it


class _LinearScores(torch.autograd.Function):
    """Its last argument says whether gradients are on, which `forward` itself cannot see."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_K: Tensor,
        inverse_K1: Tensor | None,
        size: int,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.frozen = differentiable and not any(ctx.needs_input_grad[1:3])
        mean_KH = torch.zeros_like(hidden_KH, dtype=_wide(hidden_KH)) if ctx.frozen else None
        highest_K = hidden_KH.new_full((len(hidden_KH),), -torch.inf, dtype=_wide(hidden_KH))
        chosen_K, sum_K, weighted_K = (torch.zeros_like(highest_K) for _ in range(3))
        kept_KV = None
        for start, logits_KB in _logits(hidden_KH, weight_VH, bias_V, inverse_K1, size):
            inside_K1, at_K1 = _place(targets_K, start, logits_KB)
            chosen_K = torch.where(inside_K1, logits_KB.gather(1, at_K1), chosen_K.unsqueeze(1)).squeeze(1)
            before_K, highest_K = highest_K, torch.maximum(highest_K, logits_KB.amax(1))
            fade_K = (before_K - highest_K).exp()
            exp_KB = (logits_KB - highest_K.unsqueeze(1)).exp_()
            sum_K = sum_K * fade_K + exp_KB.sum(1)
            weighted_K = weighted_K * fade_K + torch.linalg.vecdot(exp_KB, logits_KB)
            if mean_KH is not None:
                _add_product(mean_KH.mul_(fade_K.unsqueeze(1)), exp_KB, weight_VH[start : start + exp_KB.shape[1]])
            elif differentiable and size >= len(weight_VH):
                kept_KV = exp_KB.div_(sum_K.unsqueeze(1))
        total_K = highest_K + sum_K.log()
        entropy_K = total_K - weighted_K / sum_K
        ctx.mark_non_differentiable(entropy_K)
        ctx.size = size
        if mean_KH is not None:
            slope_KH = weight_VH[targets_K] - mean_KH.div_(sum_K.unsqueeze(1))
            ctx.save_for_backward(slope_KH if inverse_K1 is None else slope_KH * inverse_K1)
        else:
            ctx.save_for_backward(hidden_KH, weight_VH, bias_V, targets_K, inverse_K1, total_K, kept_KV)
        return chosen_K - total_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_K: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.frozen:
            (slope_KH,) = ctx.saved_tensors
            return slope_KH * gradient_K.unsqueeze(1), *[None] * 6
        hidden_KH, weight_VH, bias_V, targets_K, inverse_K1, total_K, kept_KV = ctx.saved_tensors
        scale_K1 = gradient_K.unsqueeze(1) if inverse_K1 is None else gradient_K.unsqueeze(1) * inverse_K1
        to_hidden_KH = torch.zeros_like(hidden_KH, dtype=_wide(hidden_KH))
        to_weight_VH = torch.empty_like(weight_VH)
        to_bias_V = None if bias_V is None else torch.empty_like(bias_V)
        blocks = _logits(hidden_KH, weight_VH, bias_V, inverse_K1, ctx.size) if kept_KV is None else [(0, kept_KV)]
        for start, block_KB in blocks:
            softmax_KB = (block_KB - total_K.unsqueeze(1)).exp_() if kept_KV is None else block_KB
            inside_K1, at_K1 = _place(targets_K, start, block_KB)
            slope_KB = (softmax_KB * -scale_K1).scatter_add_(1, at_K1, scale_K1 * inside_K1).to(weight_VH.dtype)
            rows = slice(start, start + slope_KB.shape[1])
            _add_product(to_hidden_KH, slope_KB, weight_VH[rows])
            torch.mm(slope_KB.T, hidden_KH.to(slope_KB.dtype), out=to_weight_VH[rows])
            if to_bias_V is not None:
                to_bias_V[rows] = slope_KB.sum(0)
        return to_hidden_KH, to_weight_VH, to_bias_V, *[None] * 4


def _logits(
    hidden_KH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, inverse_K1: Tensor | None, size: int
) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, len(weight_VH), size):
        rows = slice(start, start + size)
        weight_BH, bias_B = weight_VH[rows], None if bias_V is None else bias_V[rows].to(hidden_KH.dtype)
        logits_KB = F.linear(hidden_KH, weight_BH.to(hidden_KH.dtype), bias_B).to(_wide(hidden_KH))
        yield start, logits_KB if inverse_K1 is None else logits_KB.mul_(inverse_K1)


def _place(targets_K: Tensor, start: int, block_KB: Tensor) -> tuple[Tensor, Tensor]:
    last = block_KB.shape[1] - 1
    at_K1 = (targets_K - start).unsqueeze(1)
    return (at_K1 >= 0) & (at_K1 <= last), at_K1.clamp(0, last)


def _add_product(sum_KH: Tensor, left_KB: Tensor, right_BH: Tensor) -> None:
    """Add left @ right in place; products in the dtype of `right`, the sum in its own."""
    if sum_KH.dtype == right_BH.dtype:
        sum_KH.addmm_(left_KB, right_BH)
    else:
        sum_KH += left_KB.to(right_BH.dtype) @ right_BH


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
