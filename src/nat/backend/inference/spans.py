"""Decoding attention over keys and values that several sequences share, on the CPU.

Each node of the prefix cache is read once for all sequences that use it. A sequence's output is the average of its
outputs over its nodes and its slot, weighted by the sum of the exponentials that each was normalised with
("cascade attention"; the identity is that of FlashAttention, Dao et al. 2022, section 3.1).

Shapes: B sequences, M of them that use a node, P outputs of all parts, K most parts of a sequence, G key/value heads, R
query heads of each, N keys of a node, L of a slot, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nat.backend.attention import Window
from nat.backend.inference.prefix_cache import Node
from nat.backend.inference.scheduler import Chunk


@dataclass(frozen=True)
class _Span:
    """The keys of a node from `start` on, and the sequences that see them."""

    node: Node
    start: int
    rows: list[int]
    rows_M: Tensor

    def attend(self, layer: int, query_BGRD: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
        """Output [M, G, R, D] and logarithm of the sum of exponentials [M, G, R]."""
        keys_1GND, values_1GND = (x[:, self.start :].unsqueeze(0) for x in self.node.layers[layer])
        if len(self.rows) == 1:
            return _attend(query_BGRD[self.rows[0] : self.rows[0] + 1], keys_1GND, values_1GND, scale)
        _, groups, heads, size = query_BGRD.shape
        folded = query_BGRD.index_select(0, self.rows_M).transpose(0, 1).reshape(1, groups, -1, size)
        out, log_sum = _attend(folded, keys_1GND, values_1GND, scale)
        shape = (groups, len(self.rows), heads)
        return out.reshape(*shape, -1).transpose(0, 1), log_sum.reshape(shape).transpose(0, 1)


class Spans:
    """The nodes that the decoding sequences of a step see through a window."""

    def __init__(self, decoding: Sequence[Chunk], window: Window, device: torch.device) -> None:
        self._spans = [
            _Span(node, start, rows, torch.tensor(rows, device=device))
            for node, start, rows in _visible(decoding, window)
        ]
        parts: list[list[int]] = [[row] for row in range(len(decoding))]
        number = len(decoding)
        for span in self._spans:
            for row in span.rows:
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
        found = [_attend(query_BGRD, key_BGLD, value_BGLD, scale, mask)]
        found += [span.attend(layer, query_BGRD, scale) for span in self._spans]
        out_PGRD, log_sum_PGR = (torch.cat(parts) for parts in zip(*found, strict=True))
        log_sum_KBGR = log_sum_PGR[self._parts_KB].masked_fill_(self._missing_KB[..., None, None], -torch.inf)
        weights_KBGR = log_sum_KBGR.softmax(0)
        return (weights_KBGR.unsqueeze(-1) * out_PGRD[self._parts_KB]).sum(0).to(query_BGRD.dtype)


def _visible(decoding: Sequence[Chunk], window: Window) -> list[tuple[Node, int, list[int]]]:
    """The nodes that sequences see, from which key on, and which sequences; with a window, each by itself."""
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


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The operator behind `scaled_dot_product_attention`, which also gives the logarithm of the sum in float32."""
    out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # noqa: SLF001 - no public name
        query, key, value, attn_mask=mask, scale=scale
    )
    return out, log_sum
