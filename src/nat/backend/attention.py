"""Packed attention, forward and backward: many sequences in a single row of tokens.

The sampler and the learner both call a transformers model with `input_ids` of shape [1, T], the tokens of all
sequences one after another, and a `PackedBatch` that knows which token belongs to which sequence. transformers calls
`packed_attention` in each layer (it is registered under `PACKED_ATTENTION`), which passes the call to the batch.
Linear layers thus never see padding, and both sides compute log probabilities through the same code.

`PackedRows` are whole sequences; `PaddedQueries` are new tokens of sequences with earlier keys and values.

Shapes: T tokens, R rows, L cells of a padded row, N sequences with earlier keys, Q cells of one's padded queries, H
query heads, G key/value heads, D head size.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from nat.backend.decoder_parts import decoder, head
from nat.backend.segments import Segmented, Segments, flash
from nat.errors import ModelNotSupported

PACKED_ATTENTION = "nat_packed"
FLASH_ATTENTION = "nat_packed_segments"
"""The same with `flash` for batches that are `Segmented`; the loader chooses.

transformers takes a name with "flash" in it for a library that it loads.
"""
Window = int | None
"""How many tokens a token attends to: the last ones, including itself; None: all."""
_SMALLEST_ROW = 64
_SMALLEST_QUERY = 16
"""Shorter rows and queries share one bucket."""
_LENGTH_STEP = 64
_LENGTHS = 8
"""Lengths that GPUs see between a power of two and the next."""
_MOST_MASKED = 2**28
"""Values of a mask on a GPU, where torch takes two bytes for each."""
# Arguments that transformers passes to every attention function and that do not change a causal result.
_NEUTRAL_ARGUMENTS = frozenset({
    "position_ids", "use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
    "cache_position",
})  # fmt: skip
_MEANINGS = {"s_aux": " (attention sinks)", "softcap": " (a cap on attention scores)"}


class HeadShape(NamedTuple):
    """The heads of an attention layer."""

    queries: int
    keys: int
    size: int
    value_size: int

    @property
    def token_values(self) -> int:
        """Numbers in a token's keys and values."""
        return self.keys * (self.size + self.value_size)


@runtime_checkable
class PackedBatch(Protocol):
    """The tokens of one forward pass, and their attention to each other and to a cache."""

    @property
    def token_ids_T(self) -> Tensor: ...
    @property
    def position_ids_T(self) -> Tensor: ...

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """Attention output [T, H, D]."""


@runtime_checkable
class RowByRow(Protocol):
    """Tokens of sequences for a model on the plain path."""

    def row_by_row(self, decoder: nn.Module) -> Tensor:
        """Hidden states of all tokens; the decoder computes each sequence alone, with transformers' own attention."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: Window = None,
    packed: PackedBatch | None = None,
    use_flash: bool = False,
    **arguments: object,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls; query [1, H, T, D], result [1, T, H, D]."""
    if packed is None or attention_mask is not None:
        raise TypeError("its attention gets no packed batch, or a mask beside it: pass it on, as packed_logits() does")
    for name, argument in arguments.items():
        if name not in _NEUTRAL_ARGUMENTS and argument is not None:
            raise ModelNotSupported(
                f"{type(module).__name__} passes {name!r}{_MEANINGS.get(name, '')} to its attention, which packed "
                "attention does not support"
            )
    if dropout:
        raise ModelNotSupported(
            f"{type(module).__name__} has an attention dropout of {dropout}, which makes log probabilities random"
        )
    layer: int = module.layer_idx  # type: ignore[assignment]  # an int in every model that has attention layers
    heads = query[0], key[0], value[0]
    if use_flash and isinstance(packed, Segmented):
        out = flash(packed.segments, *heads, scale=scaling, window=sliding_window)
    else:
        out = packed.attend(layer, *heads, scale=scaling, window=sliding_window)
    return out.unsqueeze(0), None


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
AttentionInterface.register(FLASH_ATTENTION, partial(packed_attention, use_flash=True))


def takes_packed(model: PreTrainedModel) -> bool:
    """Whether the model's attention is ours; a model on the plain path keeps transformers' own."""
    name = model.config.get_text_config()._attn_implementation  # noqa: SLF001 - no public name for it
    function = AttentionInterface().get(name)  # type: ignore[no-untyped-call]  # none in transformers
    return getattr(function, "func", function) is packed_attention


def hidden_states(model: PreTrainedModel, batch: PackedBatch | RowByRow) -> Tensor:
    """The decoder's output for every token of a batch."""
    if not takes_packed(model):
        assert isinstance(batch, RowByRow), "steps of the plain path are for models on it"
        return batch.row_by_row(decoder(model))
    states: Tensor = decoder(model)(**_arguments(batch)).last_hidden_state[0]
    return states


def _arguments(batch: PackedBatch | RowByRow) -> dict[str, Any]:
    assert isinstance(batch, PackedBatch), "the same the other way round"
    ids, positions = batch.token_ids_T.unsqueeze(0), batch.position_ids_T.unsqueeze(0)
    return {"input_ids": ids, "position_ids": positions, "use_cache": False, "packed": batch}


def head_logits(model: PreTrainedModel, states_KN: Tensor) -> Tensor:
    """Logits [K, V] of hidden states."""
    logits_KV: Tensor = head(model)(inputs_embeds=states_KN.unsqueeze(0), use_cache=False).logits[0]
    return logits_KV


def packed_logits(model: PreTrainedModel, batch: PackedBatch | RowByRow, keep_K: Tensor | None = None) -> Tensor:
    """Logits [K, V] after the tokens at the packed indices `keep_K` (None: after every token)."""
    if not takes_packed(model):
        states = hidden_states(model, batch)
        return head_logits(model, states if keep_K is None else states[keep_K])
    logits_KV: Tensor = model(**_arguments(batch), logits_to_keep=0 if keep_K is None else keep_K).logits[0]
    return logits_KV


@dataclass(frozen=True)
class _RowBucket:
    """Rows of similar length, padded together only inside attention."""

    tokens_N: Tensor | None  # packed indices of the bucket's tokens, None: all tokens
    cells_N: Tensor | None  # their cells in the padded [R * L] grid, None: no padding needed
    num_rows: int
    length: int


class PackedRows(Segmented):
    """Independent causal sequences in one packed row, without a cache: training batches and prefills."""

    def __init__(self, token_ids_T: Tensor, lengths: Sequence[int]) -> None:
        if not lengths or min(lengths) < 1:
            raise ValueError(f"each packed row needs at least one token; the lengths are {list(lengths)}")
        if sum(lengths) != token_ids_T.numel():
            raise ValueError(f"{token_ids_T.numel()} tokens for rows that sum to {sum(lengths)}")
        self.token_ids_T = token_ids_T
        self.lengths = tuple(lengths)
        device = token_ids_T.device
        positions = torch.cat([torch.arange(length) for length in lengths])
        self.position_ids_T = positions.to(device)
        self._buckets = _bucket_rows(self.lengths, positions, device)
        self._masks: dict[tuple[int, int], Tensor] = {}

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Self:
        """Pack token ids, row by row in the given order."""
        flat = [token for row in rows for token in row]
        return cls(torch.tensor(flat, dtype=torch.long, device=device), [len(row) for row in rows])

    @cached_property
    def segments(self) -> Segments:
        return Segments.of([np.arange(length) for length in self.lengths], self.lengths, self.token_ids_T.device)

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """Causal attention within each row; the same in every layer."""
        del layer
        query, key, value = (x.transpose(0, 1) for x in (query_HTD, key_GTD, value_GTD))
        if len(self._buckets) == 1:
            return self._attend_bucket(self._buckets[0], query, key, value, scale, window)
        out = query.new_zeros(query.shape[0], query.shape[1], value.shape[2])
        for bucket in self._buckets:
            part = self._attend_bucket(bucket, query, key, value, scale, window)
            assert bucket.tokens_N is not None, "a bucket without indices holds all rows"
            out = out.index_copy(0, bucket.tokens_N, part)
        return out

    def _attend_bucket(
        self, bucket: _RowBucket, query: Tensor, key: Tensor, value: Tensor, scale: float | None, window: Window
    ) -> Tensor:
        mask = self._window_mask(bucket.length, window, query.device)
        heads = _pad(query, bucket), _pad(key, bucket), _pad(value, bucket)
        if mask is None:
            grouped = query.shape[1] != key.shape[1]
            out_RHLD = F.scaled_dot_product_attention(*heads, is_causal=True, scale=scale, enable_gqa=grouped)
        else:
            out_RHLD = masked_attention(*heads, mask, scale)
        out = out_RHLD.transpose(1, 2).reshape(bucket.num_rows * bucket.length, query.shape[1], value.shape[2])
        return out if bucket.cells_N is None else out.index_select(0, bucket.cells_N)

    def _window_mask(self, length: int, window: Window, device: torch.device) -> Tensor | None:
        if window is None or window >= length:
            return None
        if (length, window) not in self._masks:
            ones = torch.ones(length, length, dtype=torch.bool, device=device)
            self._masks[length, window] = ones.tril() & ones.triu(1 - window)
        return self._masks[length, window]


def _bucket_rows(lengths: tuple[int, ...], positions: Tensor, device: torch.device) -> list[_RowBucket]:
    """Group rows whose lengths are within a factor of two, so that padding at most doubles the work."""
    sizes = torch.tensor(lengths)
    keys = (sizes.clamp(min=_SMALLEST_ROW) - 1).log2().floor()
    row_of_T = torch.repeat_interleave(torch.arange(len(lengths)), sizes)
    buckets = []
    for key in sorted(set(keys.tolist())):
        chosen = keys == key
        num_rows, length = int(chosen.sum()), planned_length(int(sizes[chosen].max()), device)
        rank = chosen.cumsum(0) - 1
        member_T = chosen[row_of_T]
        cells = rank[row_of_T[member_T]] * length + positions[member_T]
        full = cells.numel() == num_rows * length
        buckets.append(
            _RowBucket(
                tokens_N=None if num_rows == len(lengths) else member_T.nonzero().squeeze(1).to(device),
                cells_N=None if full else cells.to(device),
                num_rows=num_rows,
                length=length,
            )
        )
    return buckets


def _pad(x_THD: Tensor, bucket: _RowBucket) -> Tensor:
    """[T, H, D] → [R, H, L, D]; cells after a row's end are zero, and the causal mask hides them."""
    part = x_THD if bucket.tokens_N is None else x_THD.index_select(0, bucket.tokens_N)
    if bucket.cells_N is not None:
        part = part.new_zeros(bucket.num_rows * bucket.length, *part.shape[1:]).index_copy(0, bucket.cells_N, part)
    return part.reshape(bucket.num_rows, bucket.length, *part.shape[1:]).transpose(1, 2)


def similar(sizes: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Group indices whose sizes are within a factor of two of each other, so that padding stays bounded."""
    found: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, pair in enumerate(sizes):
        found[tuple((max(size, _SMALLEST_QUERY) - 1).bit_length() for size in pair)].append(number)
    return [found[key] for key in sorted(found)]


class PaddedQueries:
    """New tokens of several sequences, each attending to all earlier keys of its sequence; padded per bucket."""

    def __init__(self, tokens: NDArray[np.int64], spans: Sequence[tuple[int, int]], device: torch.device | str) -> None:
        """`tokens` are packed indices, one sequence after another; `spans` are their positions in each sequence."""
        sizes = [end - start for start, end in spans]
        most = max(sizes)
        cells = np.concatenate([number * most + np.arange(size) for number, size in enumerate(sizes)])
        positions = np.zeros((len(spans), most), dtype=np.int64)
        for number, (start, end) in enumerate(spans):
            positions[number, : end - start] = np.arange(start, end)
        self.tokens, self._cells, self._positions_NQ = (
            torch.from_numpy(table).to(device) for table in (tokens, cells, positions)
        )
        self._masks: dict[tuple[int, Window], Tensor] = {}

    def attend(
        self, query_THD: Tensor, keys_NGLD: Tensor, values_NGLD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """Attention output of the tokens, in their order; `query_THD` holds all packed tokens."""
        pieces, cells = self._positions_NQ.shape
        own = query_THD.index_select(0, self.tokens)
        padded = own.new_zeros(pieces * cells, *own.shape[1:]).index_copy(0, self._cells, own)
        query_NHQD = padded.reshape(pieces, cells, *own.shape[1:]).transpose(1, 2)
        out_NHQD = masked_attention(query_NHQD, keys_NGLD, values_NGLD, self._mask(keys_NGLD.shape[2], window), scale)
        out = out_NHQD.transpose(1, 2).reshape(pieces * cells, query_THD.shape[1], -1)
        return out.index_select(0, self._cells)

    def _mask(self, length: int, window: Window) -> Tensor:
        if (length, window) not in self._masks:
            key_L = torch.arange(length, device=self._positions_NQ.device)
            query_NQ1 = self._positions_NQ.unsqueeze(-1)
            visible = key_L <= query_NQ1
            if window is not None:
                visible &= key_L > query_NQ1 - window
            self._masks[length, window] = visible.unsqueeze(1)
        return self._masks[length, window]


def planned_length(length: int, device: torch.device | str) -> int:
    """The length to pad to: a GPU's attention may plan anew for each, so it sees few; a CPU's is not padded."""
    if torch.device(device).type == "cpu":
        return length
    step = max(_LENGTH_STEP, (1 << (length - 1).bit_length()) // (2 * _LENGTHS))
    return -(-length // step) * step


def masked_attention(
    query_NHQD: Tensor, key_NGLD: Tensor, value_NGLD: Tensor, mask_QL: Tensor, scale: float | None
) -> Tensor:
    """Attention output [N, H, Q, D]; the mask of visible keys is [..., Q, L].

    On a GPU, torch has no fast kernel for groups of heads and a mask. There, the query heads of a key/value head become
    its queries, so that no key is repeated; a long prompt goes in parts, since each of them has the mask.
    """
    rows, heads, _, size = query_NHQD.shape
    times = heads // key_NGLD.shape[1]
    if times == 1 or query_NHQD.is_cpu:
        return F.scaled_dot_product_attention(
            query_NHQD, key_NGLD, value_NGLD, attn_mask=mask_QL, scale=scale, enable_gqa=times > 1
        )
    most = max(1, _MOST_MASKED // (rows * times * key_NGLD.shape[2]))
    parts = []
    for query, mask in zip(torch.split(query_NHQD, most, 2), torch.split(mask_QL, most, -2), strict=True):
        folded = query.reshape(rows, heads // times, -1, size)
        repeated = mask.repeat(*[1] * (mask.dim() - 2), times, 1)
        out = F.scaled_dot_product_attention(folded, key_NGLD, value_NGLD, attn_mask=repeated, scale=scale)
        parts.append(out.reshape(rows, heads, query.shape[2], -1))
    return torch.cat(parts, 2)
