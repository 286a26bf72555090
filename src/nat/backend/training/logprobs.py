"""Log probabilities of chosen tokens under a causal LM, in fp32 and without a [tokens, vocabulary] tensor.

Logits are computed only where a token was sampled, for one block of the vocabulary at a time
(`linear_cross_entropy.py`). A model that does more to its logits than a linear layer, such as a soft cap, computes its
head over chunks of the tokens instead, and the backward pass recomputes each chunk.

Shapes: K chosen tokens, C a chunk of them, V vocabulary, H hidden size.
"""

from itertools import repeat

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from nat.backend.attention import PackedBatch, hidden_states
from nat.backend.decoder_parts import head
from nat.backend.training.linear_cross_entropy import TokenScores, linear_scores
from nat.sizing.rules import MAX_LOGITS, logits_at_a_time


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
    after = head(model)

    def score_chunk(hidden_CH: Tensor, targets_C: Tensor, temperatures_C: Tensor | None) -> TokenScores:
        logits_CV = after(inputs_embeds=hidden_CH.unsqueeze(0), use_cache=False).logits[0]
        return _score(logits_CV, targets_C, temperatures_C)

    chunk = max(1, (max_logits or MAX_LOGITS) // model.config.get_text_config().vocab_size)
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
    unchanged = head(model, **{name: same})(inputs_embeds=numbers, use_cache=False).logits
    return layer if torch.equal(unchanged.to(numbers.dtype), numbers) else None
