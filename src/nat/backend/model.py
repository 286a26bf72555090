"""A loaded model, which the sampler and the learner share: an update is served without copying a weight."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from nat.backend.attention import HeadShape, PackedBatch, RowByRow, head_logits, hidden_states, packed_logits
from nat.backend.packed_linear import PackedLinears
from nat.backend.tokenizer import ChatTokenizer

SOLE_ADAPTER = "default"
"""peft's key of a model's only adapter."""
Continues = Literal["chunks", "tokens", "nothing"]
"""What a cache of transformers continues as if all were computed at once: chunks, single tokens, or nothing."""


@dataclass(frozen=True)
class PlainPath:
    """How a model is computed that cannot take packed rows: each row alone, by transformers' own attention."""

    why: str
    """What packed rows failed at."""
    continues: Continues = "nothing"
    """How its cache is used in sampling; nothing until it is proven."""
    token_bytes: int = 1
    """Bytes of one token in such a cache, about."""
    state_bytes: int = 0
    """Bytes of what such a cache has besides, however many tokens it holds."""


@dataclass(frozen=True)
class LoadedModel:
    """A model on its device; with LoRA, the adapter's layers are inside `model`, and `peft` wraps it.

    If several adapters share one model, there is one `LoadedModel` for each.
    """

    model: PreTrainedModel
    tokenizer: ChatTokenizer
    path: Path
    max_seq_length: int
    eos_token_ids: frozenset[int]
    peft: PeftModel | None
    heads: Sequence[HeadShape]
    """The heads of each attention layer; none on the plain path."""
    linears: PackedLinears
    """Reordered weights for the sampler; to be dropped when weights have changed."""
    adapter: str = SOLE_ADAPTER
    """peft's key of the adapter, if there is one."""
    plain: PlainPath | None = None
    """How the model is computed if it cannot take packed rows."""
    no_graphs: list[str] = field(default_factory=list)
    """Why its decode steps are no CUDA graphs, once that was found; the adapters of a model share it."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def in_four_bits(self) -> bool:
        """Whether bitsandbytes holds the base weights, as codes."""
        return any(weight.dtype == torch.uint8 for weight in self.model.parameters())

    @property
    def vocab_size(self) -> int:
        """Width of the logits, which may exceed the tokenizer's vocabulary."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values in all layers."""
        if self.plain is not None:
            return self.plain.token_bytes
        return sum(each.token_values for each in self.heads) * self.dtype.itemsize

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return int(self.model.config.get_text_config().hidden_size)

    @property
    def widest(self) -> int:
        """Width of the widest activation inside the model; the logits are wider."""
        config = self.model.config.get_text_config()
        width = getattr(config, "intermediate_size", None) or 4 * int(config.hidden_size)
        return max(width) if isinstance(width, list) else int(width)

    @property
    def num_parameters(self) -> int:
        """All weights, including those of adapters; a byte of codes holds two."""
        return sum(p.numel() * (2 if p.dtype == torch.uint8 else 1) for p in self.model.parameters())

    def sampler_logits(self, batch: PackedBatch | RowByRow, keep_K: Tensor) -> Tensor:
        """Logits [K, V] after the tokens at the packed indices `keep_K`, as the sampler computes them; no gradients."""
        with self.linears.in_use():
            return packed_logits(self.model, batch, keep_K)

    def sampler_states(self, batch: PackedBatch) -> Tensor:
        """Hidden states [T, N] of all tokens, from which `sampler_head` gives the same logits."""
        with self.linears.in_use():
            return hidden_states(self.model, batch)

    def sampler_head(self, states_KN: Tensor) -> Tensor:
        """Logits [K, V] of hidden states."""
        with self.linears.in_use():
            return head_logits(self.model, states_KN)

    def trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        """The weights to train, all or only the adapter's, under names without the adapter's key."""
        if self.peft is None:
            return {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        own, neutral = f".{self.adapter}.", f".{SOLE_ADAPTER}."
        return {name.replace(own, neutral): p for name, p in self.model.named_parameters() if own in name}


def token_logprobs(logits_KV: Tensor, token_ids_K: Tensor, temperatures_K: Tensor | None = None) -> Tensor:
    """Log probability [K] of each token under its logits and at its temperature, in float32 whatever the dtype."""
    logits_KV = logits_KV.float()
    if temperatures_K is not None:
        logits_KV = logits_KV / temperatures_K.float().unsqueeze(-1)
    chosen_K = logits_KV.gather(-1, token_ids_K.unsqueeze(-1)).squeeze(-1)
    return chosen_K - logits_KV.logsumexp(-1)
