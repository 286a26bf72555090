"""Log probabilities of chosen tokens under a causal LM, in fp32 and without a [tokens, vocabulary] tensor.

Logits are computed only where a token was sampled. If even those are too many (16,000 tokens with a vocabulary of
150,000 are 10 GB), the head runs over chunks, and the backward pass recomputes each chunk.

Shapes: K chosen tokens, C a chunk of them, V vocabulary, H hidden size.
"""

import copy
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from nat.backend.attention import PackedBatch, packed_logits

MAX_LOGITS = 2**27
"""Logits in memory at a time: 512 MB in fp32."""


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
    max_logits: int = MAX_LOGITS,
) -> TokenScores:
    """Score `targets_K`, each at the packed output `keep_K`; differentiable where gradients are on.

    Each is scored under softmax(logits / T) with its own temperature T; None stands for 1 everywhere.
    """
    chunk = max(1, max_logits // model.config.get_text_config().vocab_size)
    if len(keep_K) <= chunk:
        return _score(packed_logits(model, packed, keep_K), targets_K, temperatures_K)
    hidden_KH = _decoder(model)(
        input_ids=packed.token_ids_T.unsqueeze(0),
        position_ids=packed.position_ids_T.unsqueeze(0),
        use_cache=False,
        packed=packed,
    ).last_hidden_state[0, keep_K]
    head = _head(model)

    def score_chunk(hidden_CH: Tensor, targets_C: Tensor, temperatures_C: Tensor | None) -> TokenScores:
        logits_CV = head(inputs_embeds=hidden_CH.unsqueeze(0), use_cache=False).logits[0]
        return _score(logits_CV, targets_C, temperatures_C)

    temperatures = repeat(None) if temperatures_K is None else torch.split(temperatures_K, chunk)
    parts = [
        checkpoint(score_chunk, hidden_CH, targets_C, temperatures_C, use_reentrant=False)
        for hidden_CH, targets_C, temperatures_C in zip(
            torch.split(hidden_KH, chunk), torch.split(targets_K, chunk), temperatures, strict=False
        )
    ]
    return TokenScores(torch.cat([part.logprobs_K for part in parts]), torch.cat([part.entropy_K for part in parts]))


def _score(logits_KV: Tensor, targets_K: Tensor, temperatures_K: Tensor | None) -> TokenScores:
    wide = torch.promote_types(logits_KV.dtype, torch.float32)
    if temperatures_K is not None:
        logits_KV = logits_KV.to(wide) / temperatures_K.to(wide).unsqueeze(1)
    logprobs_KV = torch.log_softmax(logits_KV, dim=-1, dtype=wide)
    with torch.no_grad():
        entropy_K = -(logprobs_KV.exp() * logprobs_KV).nansum(dim=-1)
    return TokenScores(logprobs_KV.gather(1, targets_K.unsqueeze(1)).squeeze(1), entropy_K)


def _decoder(model: PreTrainedModel) -> nn.Module:
    return model.get_submodule(model.base_model_prefix)


def _head(model: PreTrainedModel) -> nn.Module:
    """The model after its decoder (head, scaling, soft caps), with the same parameters."""
    head = copy.copy(model)
    head._modules = {**model._modules, model.base_model_prefix: _Passthrough()}  # noqa: SLF001 - nn.Module has no public way
    return head


class _Passthrough(nn.Module):
    """Replaces the decoder: hidden states come in as embeddings and go out unchanged."""

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=inputs_embeds)
