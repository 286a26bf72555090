"""The tokens of one engine step: one token of each decoding sequence, then chunks of prompts.

Decoding sequences sit in slots 0 to B-1 and come first, so their attention is one call over a view of the slots, and
one for each node of the prefix cache that some of them use. Chunks that continue a short prompt read their slots,
grouped by similar size; those of a long one read the nodes; new prompts need no cache.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nat.backend.attention import PackedRows, PaddedQueries, Window, planned_length, similar
from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.prefix_cache import KeyValues
from nat.backend.inference.scheduler import Chunk
from nat.backend.inference.spans import AfterNodes, Spans
from nat.backend.products import onednn_has_bfloat16

_MANY_VALUES = 2**19
"""Of keys; with fewer, oneDNN's calls take longer than torch's attention."""


class StepBatch:
    """A `PackedBatch`: `decoding`[i] is one token in slot i, `prefill` are chunks of prompts.

    Sequences without a node have all their keys and values in their slots. The others use those of the nodes; of them,
    a slot holds the tokens that follow, and the chunks of a prompt are not in a slot but in `computed`.
    """

    def __init__(self, cache: SlotCache, decoding: list[Chunk], prefill: list[Chunk], device: torch.device) -> None:
        self.cache = cache
        self._decoding = decoding
        continuing = [c for c in prefill if c.start > 0 and c.node is None]
        alike = similar((len(c.token_ids), c.end) for c in continuing)
        buckets = [[continuing[i] for i in indices] for indices in alike]
        continued = [c for bucket in buckets for c in bucket]
        fresh = [c for c in prefill if c.start == 0 and c.node is None]
        shared = sorted((c for c in prefill if c.node is not None), key=lambda c: c.start)
        chunks = [*decoding, *continued, *fresh, *shared]
        sizes = [len(c.token_ids) for c in chunks]
        ends = np.cumsum(sizes).tolist()
        in_slots = chunks[: len(chunks) - len(shared)]
        if in_slots:
            longest = max(c.cell + len(c.token_ids) for c in in_slots)
            cache.reserve(1 + max(c.slot for c in in_slots), planned_length(longest, device))
        self._in_slots = sum(sizes[: len(in_slots)])
        self.table_4T = _table(chunks).to(device)
        self.token_ids_T, self.position_ids_T, slots_T, cells_T = self.table_4T
        self._slots_T, self._cells_T = slots_T[: self._in_slots], cells_T[: self._in_slots]
        self.last_K = torch.from_numpy(np.cumsum(sizes) - 1).to(device)
        """Packed index of the last token of each chunk, in `order`."""
        self.order = chunks
        self._starts = {c.slot: end - len(c.token_ids) for c, end in zip(chunks, ends, strict=True)}
        self.computed: dict[int, KeyValues] = {c.slot: {} for c in shared}
        """New keys and values that are not in a slot, by slot, after the forward pass."""
        self._shared = [
            (c.slot, end - len(c.token_ids), end) for c, end in zip(shared, ends[len(in_slots) :], strict=True)
        ]
        self._continued: list[_Continued] = []
        at = len(decoding)
        for bucket in buckets:
            self._continued.append(_Continued(bucket, at, device))
            at += sum(len(c.token_ids) for c in bucket)
        beginning = [*fresh, *(c for c in shared if c.start == 0)]
        self._fresh = PackedRows.of([c.token_ids for c in beginning], device) if beginning else None
        self._fresh_tokens = slice(at, at + sum(len(c.token_ids) for c in beginning))
        at = self._fresh_tokens.stop
        self._after_nodes = []
        for c in shared:
            if c.start > 0:
                self._after_nodes.append(AfterNodes(c, at, device))
                at += len(c.token_ids)
        longest = max((c.cell + 1 for c in decoding), default=0)
        self.longest = planned_length(longest, device) if decoding else 0
        """Keys that each decoding sequence reads."""
        self._sees_all = len(decoding) == 1 and self.longest == longest
        """One sequence sees all keys but those outside of a window."""
        self._masks: dict[Window, Tensor | None] = {}
        self._reads_nodes = any(c.node is not None for c in decoding)
        self._spans: dict[Window, Spans] = {}

    @property
    def only_decodes(self) -> bool:
        """Whether each sequence gets one token and has all its keys and values in its slot."""
        return len(self._decoding) == len(self.order) and not self._reads_nodes

    def repeatable(self, count: int) -> "StepBatch":
        """The same step for `count` sequences, which `refill` turns into another one with as many keys.

        Those that are missing are computed, too, in the slots after the last one, which must be free.
        """
        filled = [*self.order, *(Chunk(slot, 0, [0]) for slot in range(len(self.order), count))]
        step = StepBatch(self.cache, filled, [], self.last_K.device)
        step._sees_all = False  # a later step does not
        return step

    def refill(self, step: "StepBatch") -> None:
        """Write the tokens of another step, and where they go, to the memory of this one.

        What is after them is from an earlier step, and goes to the free slots.
        """
        self.table_4T[:, : len(step.order)].copy_(step.table_4T)

    def outputs_of(self, chunks: Iterable[Chunk]) -> Tensor:
        """The packed indices of all tokens of some chunks, chunk by chunk."""
        starts = [(self._starts[chunk.slot], len(chunk.token_ids)) for chunk in chunks]
        parts = [torch.arange(start, start + size) for start, size in starts]
        return torch.cat(parts).to(self.last_K.device)

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """Store the new keys and values, then attend; [T, H, D]."""
        parts = []
        if self._in_slots:
            keys, values = self.cache.layer(layer, key_GTD, value_GTD)
            keys[self._slots_T, :, self._cells_T] = key_GTD[:, : self._in_slots].transpose(0, 1)
            values[self._slots_T, :, self._cells_T] = value_GTD[:, : self._in_slots].transpose(0, 1)
            if self._decoding:
                parts.append(self._decode(layer, query_HTD[:, : len(self._decoding)], keys, values, scale, window))
            parts += [bucket.attend(query_HTD, keys, values, scale, window) for bucket in self._continued]
        for slot, start, end in self._shared:
            self.computed[slot][layer] = _copy(key_GTD[:, start:end]), _copy(value_GTD[:, start:end])
        if self._fresh is not None:
            new_tokens = (x[:, self._fresh_tokens] for x in (query_HTD, key_GTD, value_GTD))
            parts.append(self._fresh.attend(layer, *new_tokens, scale=scale, window=window))
        for chunk in self._after_nodes:
            parts.append(chunk.attend(layer, query_HTD, *self.computed[chunk.slot][layer], scale, window))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(
        self, layer: int, query_HBD: Tensor, keys: Tensor, values: Tensor, scale: float | None, window: Window
    ) -> Tensor:
        batch = query_HBD.shape[1]
        own = keys[:batch, :, : self.longest], values[:batch, :, : self.longest]
        mask = self._decode_mask(window, query_HBD.dtype)
        heads, _, size = query_HBD.shape
        groups = keys.shape[1]  # the query heads of a key/value head become its queries, so no key is repeated
        query_BGRD = query_HBD.transpose(0, 1).reshape(batch, groups, heads // groups, size)
        if self._reads_nodes:
            if window not in self._spans:
                self._spans[window] = Spans(self._decoding, window, query_HBD.device)
            out = self._spans[window].attend(layer, query_BGRD, *own, mask=mask, scale=scale)
        elif _many_in_bfloat16(own[0]):
            out = _by_products(query_BGRD, *own, mask, scale)
        else:
            out = F.scaled_dot_product_attention(query_BGRD, *own, attn_mask=mask, scale=scale)
        return out.reshape(batch, -1, values.shape[-1])

    def _decode_mask(self, window: Window, dtype: torch.dtype) -> Tensor | None:
        if window not in self._masks:
            ends_B = self._cells_T[: len(self._decoding)]
            all_seen = self._sees_all and window is None
            self._masks[window] = None if all_seen else _mask(ends_B, self.longest, window, dtype)
        return self._masks[window]


class _Continued:
    """Chunks of similar size whose sequences have earlier tokens in the cache."""

    def __init__(self, chunks: Sequence[Chunk], start: int, device: torch.device) -> None:
        """`start` is the packed index of their first token."""
        tokens = np.arange(start, start + sum(len(chunk.token_ids) for chunk in chunks))
        self._queries = PaddedQueries(tokens, [(chunk.start, chunk.end) for chunk in chunks], device)
        self._slots = torch.tensor([chunk.slot for chunk in chunks], device=device)
        self._length = planned_length(max(chunk.end for chunk in chunks), device)

    def attend(self, query_HTD: Tensor, keys: Tensor, values: Tensor, scale: float | None, window: Window) -> Tensor:
        """Attention output of the chunks' tokens; keys and values are those of all slots."""
        key, value = (x[:, :, : self._length].index_select(0, self._slots) for x in (keys, values))
        return self._queries.attend(query_HTD.transpose(0, 1), key, value, scale=scale, window=window)


def _mask(positions_T: Tensor, length: int, window: Window, dtype: torch.dtype) -> Tensor:
    key_L, positions_T1 = torch.arange(length, device=positions_T.device), positions_T.unsqueeze(-1)
    hidden_TL = key_L > positions_T1
    if window is not None:
        hidden_TL |= key_L <= positions_T1 - window
    bias = torch.zeros(hidden_TL.shape, dtype=dtype, device=positions_T.device).masked_fill_(hidden_TL, -torch.inf)
    return bias[:, None, None, :]


def _table(chunks: Sequence[Chunk]) -> Tensor:
    sizes = [len(c.token_ids) for c in chunks]
    table = np.empty((4, sum(sizes)), dtype=np.int64)
    table[0] = [token for c in chunks for token in c.token_ids]
    table[1] = [position for c in chunks for position in range(c.start, c.end)]
    table[2] = np.repeat([c.slot for c in chunks], sizes)
    table[3] = table[1] - np.repeat([c.start - c.cell for c in chunks], sizes)
    return torch.from_numpy(table)


def _many_in_bfloat16(key: Tensor) -> bool:
    """True if oneDNN's products are faster than torch's attention, which converts the numbers."""
    return key.is_cpu and key.dtype == torch.bfloat16 and key.numel() >= _MANY_VALUES and onednn_has_bfloat16()


def _by_products(
    query_BGRD: Tensor, key_BGLD: Tensor, value_BGLD: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Attention of a few queries as two products of matrices.

    The keys are the left factor, since oneDNN would copy them as the right one. The scores are rounded to the model's
    precision, as its activations are; the softmax is float32.
    """
    batch, groups, heads, size = query_BGRD.shape
    query_NDR = (query_BGRD * (size**-0.5 if scale is None else scale)).flatten(0, 1).transpose(1, 2)
    scores_BGLR = torch.bmm(key_BGLD.flatten(0, 1), query_NDR).view(batch, groups, -1, heads)
    scores_BGRL = torch.empty(batch, groups, heads, scores_BGLR.shape[2])
    torch.add(scores_BGLR.transpose(2, 3), 0 if mask is None else mask, out=scores_BGRL)
    weights_NRL = scores_BGRL.softmax(-1).to(value_BGLD.dtype).flatten(0, 1)
    return torch.bmm(weights_NRL, value_BGLD.flatten(0, 1)).view(batch, groups, heads, -1)


def _copy(x_GND: Tensor) -> Tensor:
    """A copy in which a head's keys or values follow one another, as decoding reads them."""
    return x_GND.clone(memory_format=torch.contiguous_format)
