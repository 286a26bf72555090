"""Attention to keys and values that several sequences share, on the CPU.

Each node of the prefix cache is read once for all decoding sequences that use it, and without a copy by the chunks of
prompts after it. The output is the average of the outputs over the nodes and over what is the sequence's own, weighted
by the sum of the exponentials that each was normalised with ("cascade attention"; the identity is that of
FlashAttention, Dao et al. 2022, section 3.1).

Shapes: B sequences, M of them that use a node, P outputs of all parts, K most parts of a sequence, G key/value heads, R
query heads of each, H of all, N keys of a node, S parts of a node, L keys of a slot or of a part, Q queries of a group,
T tokens of a chunk, D head size.
"""

from collections.abc import Sequence
from math import gcd

import numpy as np
import torch
from torch import Tensor

from nat.backend.attention import PaddedQueries, Window
from nat.backend.inference.prefix_cache import Node
from nat.backend.inference.scheduler import Chunk

_SMALLEST_PART = 128
"""Keys of a node's part; shorter ones gain nothing."""


class _Span:
    """The keys of a node from `start` on, and the sequences that see them.

    torch's operator divides the heads between the threads. Where those of a single sequence do not come out even, it
    gets the keys in parts of the same size. If they cannot be divided so, a part begins with the last keys of the one
    before, and a mask hides them.
    """

    def __init__(self, node: Node, start: int, rows: list[int], device: torch.device) -> None:
        self._node = node
        self._start = start
        self.rows = rows
        self._rows_M = torch.tensor(rows, device=device)
        keys_GND, _ = next(iter(node.layers.values()))
        length = keys_GND.shape[1] - start
        threads = torch.get_num_threads()
        even = min(threads // gcd(keys_GND.shape[0], threads), length // _SMALLEST_PART)
        self.parts = 1 if len(rows) > 1 else max(1, even)
        self._step, again = divmod(length, self.parts)
        self._size = self._step + again
        self._mask: Tensor | None = None
        if again:
            self._mask = keys_GND.new_zeros(1, self.parts, 1, self._size)
            self._mask[:, 1:, :, :again] = -torch.inf

    def attend(self, layer: int, query_BGRD: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
        """Output [S * M, G, R, D] and logarithm of the sum of exponentials [S * M, G, R], by parts."""
        keys_GSLD, values_GSLD = (
            x_GND[:, self._start :].unfold(1, self._size, self._step).transpose(2, 3)
            for x_GND in self._node.layers[layer]
        )
        _, groups, heads, size = query_BGRD.shape
        query_G1QD = query_BGRD.index_select(0, self._rows_M).transpose(0, 1).reshape(groups, 1, -1, size)
        query_GSQD = query_G1QD.expand(-1, self.parts, -1, -1)
        out, log_sum = _attend(query_GSQD, keys_GSLD, values_GSLD, scale, mask=self._mask)
        shape = (groups, self.parts * len(self.rows), heads)
        return out.reshape(*shape, -1).transpose(0, 1), log_sum.reshape(shape).transpose(0, 1)


class Spans:
    """The nodes that the decoding sequences of a step see through a window."""

    def __init__(self, decoding: Sequence[Chunk], window: Window, device: torch.device) -> None:
        self._spans = [_Span(node, start, rows, device) for node, start, rows in _visible(decoding, window)]
        parts: list[list[int]] = [[row] for row in range(len(decoding))]
        number = len(decoding)
        for span in self._spans:
            for row in span.parts * span.rows:
                parts[row].append(number)
                number += 1
        most = max(map(len, parts), default=0)
        table_BK = torch.tensor([own + [-1] * (most - len(own)) for own in parts], device=device)
        self._missing_KB = (table_BK < 0).T
        self._parts_KB = table_BK.clamp(min=0).T

    def attend(
        self,
        layer: int,
        query_BGRD: Tensor,
        key_BGLD: Tensor,
        value_BGLD: Tensor,
        *,
        mask: Tensor | None,
        scale: float | None,
    ) -> Tensor:
        """Attention output [B, G, R, D] over the slots, whose keys and values are given, and the nodes."""
        found = [_attend(query_BGRD, key_BGLD, value_BGLD, scale, mask=mask)]
        found += [span.attend(layer, query_BGRD, scale) for span in self._spans]
        out_PGRD, log_sum_PGR = (torch.cat(parts) for parts in zip(*found, strict=True))
        log_sum_KBGR = log_sum_PGR[self._parts_KB].masked_fill_(self._missing_KB[..., None, None], -torch.inf)
        return _average(out_PGRD[self._parts_KB], log_sum_KBGR)


class AfterNodes:
    """A chunk whose sequence has its earlier tokens in nodes of the prefix cache."""

    def __init__(self, chunk: Chunk, start: int, device: torch.device) -> None:
        """`start` is the packed index of its first token."""
        assert chunk.node is not None, "chosen for its node"
        self.slot = chunk.slot
        self._chunk = chunk
        self._nodes = chunk.node.path
        self._tokens = slice(start, start + len(chunk.token_ids))
        self._device = device
        self._queries: PaddedQueries | None = None

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, scale: float | None, window: Window
    ) -> Tensor:
        """Attention output [T, H, D] of the chunk's tokens, whose own keys and values are given."""
        earlier = [node.layers[layer] for node in self._nodes]
        if window is not None and window < self._chunk.end:
            return self._in_window(earlier, query_HTD, key_GTD, value_GTD, scale, window)
        query_1HTD = query_HTD[:, self._tokens].unsqueeze(0)
        query_1GQD = query_1HTD.reshape(1, len(key_GTD), -1, query_1HTD.shape[-1])
        found = [_attend(query_1HTD, key_GTD.unsqueeze(0), value_GTD.unsqueeze(0), scale, causal=True)]
        found += [_attend(query_1GQD, keys.unsqueeze(0), values.unsqueeze(0), scale) for keys, values in earlier]
        shape = query_1HTD.shape[1:3]
        out_PHTD = torch.stack([out.reshape(*shape, -1) for out, _ in found])
        log_sum_PHT = torch.stack([log_sum.reshape(shape) for _, log_sum in found])
        return _average(out_PHTD, log_sum_PHT).transpose(0, 1)

    def _in_window(
        self,
        earlier: Sequence[tuple[Tensor, Tensor]],
        query_HTD: Tensor,
        key_GTD: Tensor,
        value_GTD: Tensor,
        scale: float | None,
        window: int,
    ) -> Tensor:
        if self._queries is None:
            tokens = np.arange(self._tokens.start, self._tokens.stop)
            self._queries = PaddedQueries(tokens, [(self._chunk.start, self._chunk.end)], self._device)
        key, value = (
            torch.cat([*(pair[i] for pair in earlier), own], dim=1) for i, own in enumerate((key_GTD, value_GTD))
        )
        query_THD = query_HTD.transpose(0, 1)
        return self._queries.attend(query_THD, key.unsqueeze(0), value.unsqueeze(0), scale=scale, window=window)


def _visible(decoding: Sequence[Chunk], window: Window) -> list[tuple[Node, int, list[int]]]:
    shared: dict[int, tuple[Node, int, list[int]]] = {}
    single: list[tuple[Node, int, list[int]]] = []
    for row, chunk in enumerate(decoding):
        at = 0
        for node in [] if chunk.node is None else chunk.node.path:
            if window is None:
                shared.setdefault(id(node), (node, 0, []))[2].append(row)
            else:
                start = max(0, chunk.start - window + 1 - at)
                at += len(node.tokens)
                if start < len(node.tokens):
                    single.append((node, start, [row]))
    return [*shared.values(), *single]


def _average(out: Tensor, log_sum: Tensor) -> Tensor:
    return (log_sum.softmax(0).unsqueeze(-1) * out).sum(0).to(out.dtype)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, *, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The operator behind `scaled_dot_product_attention`, which also gives the logarithm of the sum in float32."""
    out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # noqa: SLF001 - no public name
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale
    )
    return out, log_sum
