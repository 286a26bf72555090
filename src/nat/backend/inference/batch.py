"""The tokens of one engine step: one token of each decoding sequence, then chunks of prompts.

Decoding sequences sit in slots 0 to B-1 and come first, so their attention is one call over a view of the cache.
Chunks that continue a prompt read their slots, grouped by similar size; new prompts need no cache.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from nat.backend.attention import PackedRows, PaddedQueries, Window, similar
from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.scheduler import Chunk


class StepBatch:
    """A `PackedBatch` over the slot cache: `decoding`[i] is one token in slot i, `prefill` are chunks of prompts."""

    def __init__(self, cache: SlotCache, decoding: list[Chunk], prefill: list[Chunk], device: torch.device) -> None:
        self._cache = cache
        self._num_decoding = len(decoding)
        continuing = [c for c in prefill if c.start > 0]
        buckets = [[continuing[i] for i in alike] for alike in similar((len(c.token_ids), c.end) for c in continuing)]
        continued = [c for bucket in buckets for c in bucket]
        fresh = [c for c in prefill if c.start == 0]
        chunks = [*decoding, *continued, *fresh]
        cache.reserve(1 + max(c.slot for c in chunks), max(c.end for c in chunks))
        sizes = [len(c.token_ids) for c in chunks]
        table = np.empty((3, sum(sizes)), dtype=np.int64)
        table[0] = [token for c in chunks for token in c.token_ids]
        table[1] = [position for c in chunks for position in range(c.start, c.end)]
        table[2] = np.repeat([c.slot for c in chunks], sizes)
        self.token_ids_T, self.position_ids_T, self._slots_T = torch.from_numpy(table).to(device)
        self.last_K = torch.from_numpy(np.cumsum(sizes) - 1).to(device)
        """Packed index of the last token of each chunk: decoding, then continued, then fresh."""
        self.order = chunks
        self._fresh_start = sum(sizes[: len(decoding) + len(continued)])
        self._continued = []
        at = len(decoding)
        for bucket in buckets:
            self._continued.append(_Continued(bucket, at, device))
            at += sum(len(c.token_ids) for c in bucket)
        self._fresh = PackedRows.of([c.token_ids for c in fresh], device) if fresh else None
        self._longest = max((c.end for c in decoding), default=0)
        self._masks: dict[Window, Tensor | None] = {}

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """Store the new keys and values, then attend; [T, H, D]."""
        keys, values = self._cache.layer(layer, key_GTD, value_GTD)
        keys[self._slots_T, :, self.position_ids_T] = key_GTD.transpose(0, 1)
        values[self._slots_T, :, self.position_ids_T] = value_GTD.transpose(0, 1)
        parts = []
        if self._num_decoding:
            parts.append(self._decode(query_HTD[:, : self._num_decoding], keys, values, scale, window))
        parts += [bucket.attend(query_HTD, keys, values, scale, window) for bucket in self._continued]
        if self._fresh is not None:
            new_tokens = (x[:, self._fresh_start :] for x in (query_HTD, key_GTD, value_GTD))
            parts.append(self._fresh.attend(layer, *new_tokens, scale=scale, window=window))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(self, query_HBD: Tensor, keys: Tensor, values: Tensor, scale: float | None, window: Window) -> Tensor:
        """Grouped-query attention: the query heads of a key/value head become its queries, so no key is repeated."""
        heads, batch, size = query_HBD.shape
        groups = keys.shape[1]
        out = F.scaled_dot_product_attention(
            query_HBD.transpose(0, 1).reshape(batch, groups, heads // groups, size),
            keys[:batch, :, : self._longest],
            values[:batch, :, : self._longest],
            attn_mask=self._decode_mask(window, query_HBD.dtype),
            scale=scale,
        )
        return out.reshape(batch, heads, values.shape[-1])

    def _decode_mask(self, window: Window, dtype: torch.dtype) -> Tensor | None:
        """Additive mask [B, 1, 1, L], made once per step and window; None if each sequence sees all keys."""
        if window not in self._masks:
            ends_B1 = self.position_ids_T[: self._num_decoding].unsqueeze(-1)
            key_L = torch.arange(self._longest, device=ends_B1.device)
            hidden_BL = key_L > ends_B1
            if window is not None:
                hidden_BL |= key_L <= ends_B1 - window
            bias = torch.zeros(hidden_BL.shape, dtype=dtype, device=ends_B1.device).masked_fill_(hidden_BL, -torch.inf)
            self._masks[window] = bias[:, None, None, :] if self._num_decoding > 1 or window is not None else None
        return self._masks[window]


class _Continued:
    """Chunks of similar size whose sequences have earlier tokens in the cache."""

    def __init__(self, chunks: Sequence[Chunk], start: int, device: torch.device) -> None:
        """`start` is the packed index of their first token."""
        tokens = np.arange(start, start + sum(len(chunk.token_ids) for chunk in chunks))
        self._queries = PaddedQueries(tokens, [(chunk.start, chunk.end) for chunk in chunks], device)
        self._slots = torch.tensor([chunk.slot for chunk in chunks], device=device)
        self._length = max(chunk.end for chunk in chunks)

    def attend(self, query_HTD: Tensor, keys: Tensor, values: Tensor, scale: float | None, window: Window) -> Tensor:
        """Attention output of the chunks' tokens; keys and values are those of all slots."""
        key, value = (x[:, :, : self._length].index_select(0, self._slots) for x in (keys, values))
        return self._queries.attend(query_HTD.transpose(0, 1), key, value, scale=scale, window=window)
